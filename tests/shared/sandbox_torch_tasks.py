"""Tasks for the sandbox's tests that use torch in a worker."""

import torch
from sandbox_tasks import Mark

from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.store.document.case import Json


def threads(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    return {"threads": torch.get_num_threads(), "pool": torch.__config__.parallel_info().count("omp")}


def two_threads(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    """A parallel region in a child of a parent that never had one."""
    torch.set_num_threads(2)
    x = torch.ones(1 << 20)
    total = float((x * 2).sum())
    torch.set_num_threads(1)
    return {"total": total}


def backward(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    x = torch.ones(8, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None
    return {"gradient": x.grad.tolist()}


def compiles(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    """Inductor, three graphs in one worker."""
    torch._dynamo.reset()
    out = []
    for n in range(argument["graphs"]):
        compiled = torch.compile(lambda x, n=n: (x.sin() + n).sum())
        out.append(float(compiled(torch.zeros(8))))
    return {"out": out}


def mutates(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    torch.set_default_dtype(torch.float64)
    return {}


def default_dtype(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    return {"dtype": str(torch.get_default_dtype())}
