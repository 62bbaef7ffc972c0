"""The code that Inductor generates for a graph: its kernels, in C++ or Triton, and the function that calls them."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...store.parsing import parse
from ..adapters import Illustration

#: The first line of a kernel that says something: what is before it is the same in each.
_BEGINS = ('extern "C"', "@triton.jit")


@contextmanager
def collected() -> Iterator[Callable[[], list[Illustration]]]:
    """Collect the code of each graph that Inductor compiles inside the block."""
    from torch._inductor.graph import GraphLowering

    modules: list[str] = []
    before = GraphLowering.save_output_code

    def save(code: str) -> None:
        modules.append(code)
        if before is not None:
            before(code)

    GraphLowering.save_output_code = save
    try:
        yield lambda: [part for module in modules for part in parts(module)]
    finally:
        GraphLowering.save_output_code = before


def parts(module: str) -> Iterator[Illustration]:
    """Yield the kernels of a generated ``module`` of Python, each by its name, and then its function ``call``."""
    tree = parse(module)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            texts = [a.value for a in node.value.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            code = max(texts, key=len, default="")
            begin = min((at for mark in _BEGINS if (at := code.find(mark)) >= 0), default=-1)
            if ast.unparse(node.value.func).startswith("async_compile.") and begin >= 0:
                yield Illustration(f"kernel {node.targets[0].id}", f"{code[begin:].strip()}\n")
    for inner in ast.walk(tree):
        if isinstance(inner, ast.FunctionDef) and inner.name == "call":
            lines = module.splitlines()[inner.lineno - 1 : inner.end_lineno]
            yield Illustration("the function that calls them", textwrap.dedent("\n".join(lines)) + "\n")
