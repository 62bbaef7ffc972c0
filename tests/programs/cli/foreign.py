"""Makes the files of PyTorch's own tools, by failing as they are watched: ``python foreign.py KIND...``."""

import shutil
import sys
from pathlib import Path

import torch
import torch._dynamo.config
import torch._inductor.config
from torch._dynamo import register_backend

torch.set_num_threads(1)


@register_backend
def refuses_sin(gm, inputs):
    if any(n.target is torch.sin for n in gm.graph.nodes):
        raise NotImplementedError("no lowering for sin")
    return gm.forward


@register_backend
def sin_is_cos(gm, inputs):
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    return gm


def attempt(backend, function) -> None:
    torch._dynamo.reset()
    torch.manual_seed(1)
    layer = torch.nn.Linear(4, 4)
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    try:
        torch.compile(lambda x: function(layer(x)), backend=backend)(x)
    except Exception as exc:  # noqa: BLE001  PyTorch's tools have seen it
        print(type(exc).__name__)


def keep(name) -> None:
    """The newest launcher, and its data, as ``name.py`` in a folder ``name``."""
    found = max(Path().rglob("minifier_launcher.py"), key=lambda p: p.stat().st_mtime)
    shutil.copytree(found.parent, name)
    (Path(name) / "minifier_launcher.py").rename(Path(name) / f"{name}.py")
    shutil.rmtree(found.parent)


def main(kinds) -> None:
    if "refused" in kinds:
        torch._dynamo.config.repro_after, torch._dynamo.config.repro_level = "dynamo", 2
        attempt("refuses_sin", lambda x: torch.sin(x) * 2)
        keep("refused")
    if "wrong" in kinds:
        torch._dynamo.config.repro_after, torch._dynamo.config.repro_level = "dynamo", 4
        attempt("sin_is_cos", lambda x: torch.sin(x) * 2)
        keep("wrong")
    torch._dynamo.config.repro_after = None
    torch._inductor.config.compile_threads = 1
    torch._inductor.config.fx_graph_cache = False
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
    if "aot" in kinds:
        torch._dynamo.config.repro_after, torch._dynamo.config.repro_level = "aot", 1
        attempt("inductor", lambda x: torch.relu(x) * 2)  # writes repro.py
    torch._dynamo.config.repro_after = None
    if "runnable" in kinds:
        torch._inductor.config.trace.enabled = True
        torch._inductor.config.trace.debug_dir = str(Path("trace").absolute())
        attempt("inductor", lambda x: torch.relu(x) * 2)
        shutil.copy(next(Path("trace").rglob("fx_graph_runnable.py")), "fx_graph_runnable.py")
    if "healthy" in kinds:
        torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = None
        torch._inductor.config.trace.debug_dir = str(Path("healthy").absolute())
        attempt("inductor", lambda x: torch.relu(x) * 2)
        shutil.copy(next(Path("healthy").rglob("fx_graph_runnable.py")), "healthy.py")


if __name__ == "__main__":
    main(sys.argv[1:])
