"""``fxminify_print_graph``: prints each graph as a table and runs it in eager, to see what a backend would be given.

``options={"level": "aot"}`` prints the ATen graphs that AOTAutograd makes of it, forward and backward, instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ...store.text import printable
from ..running.execution import called
from .options_reader import choose, read

NAME = "fxminify_print_graph"
#: Columns where output is no terminal: no line is folded.
_WIDE = 100_000


@dataclass(frozen=True, slots=True)
class PrintGraphOptions:
    """``level``: which graph to print, ``dynamo`` (what a backend receives) or ``aot`` (ATen, forward and backward)."""

    level: str = "dynamo"

    def __post_init__(self) -> None:
        choose(self.level, ("dynamo", "aot"), "level", NAME)


def print_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """``fxminify_print_graph``: print ``gm`` as a table of its nodes on standard output and run it in eager.

    ``options`` are the fields of `PrintGraphOptions`. Raises `InvalidOption` for others.
    """
    if read(PrintGraphOptions, options, NAME).level == "aot":
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd

        def compiler(title: str) -> Callable[..., Any]:
            def compile_fx(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
                show(graph, title)
                return make_boxed_func(graph.forward)

            return compile_fx

        backend = aot_autograd(
            fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), inference_compiler=compiler("inference")
        )
        return backend(gm, example_inputs)
    show(gm, "graph")
    return gm.forward


def show(gm: torch.fx.GraphModule, title: str) -> None:
    """Print ``gm`` with the columns of `torch.fx.Graph.print_tabular`; lines are whole where output is no terminal."""
    table = Table(title=f"{title}: {len(gm.graph.nodes)} nodes", title_justify="left", box=None, pad_edge=False)
    for column in ("opcode", "name", "target", "args", "kwargs"):
        table.add_column(column, overflow="fold")
    for node in gm.graph.nodes:
        table.add_row(
            *(printable(str(x), other=" ") for x in (node.op, node.name, called(node), node.args, dict(node.kwargs)))
        )
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    console.print(table)
