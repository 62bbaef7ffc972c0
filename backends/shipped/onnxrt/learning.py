"""A backend that makes the table of `trust`: it runs graphs in eager and checks the translation of every call.

The graphs are those that ``fxminify_ort`` gets, forward and backward. Each call is checked on the values that it has in
the program, a few times for each of its patterns. What was found is appended to a file, a line for each check;
`collect` makes a table of such files. ``python -m fxminify.minifier.hunting.translations`` does all of it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from . import alone, decompositions, partition, runtime
from .options import OnnxrtOptions
from .patterns import CallPattern, pattern_of
from .trust import Table, installed

#: So many calls of one pattern are checked in a process.
CHECKS = 6
_CPU = (runtime.CPU,)
_count: Counter[CallPattern] = Counter()


def learn(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Compile a graph of Dynamo's. ``options`` has the ``file`` to which findings are appended."""

    def compile_aten(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def boxed(args: list[Any]) -> Any:
            given = list(args)
            args.clear()
            return _Learner(graph, Path(options["file"])).run(*given)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    backend = aot_autograd(
        fw_compiler=compile_aten,
        bw_compiler=compile_aten,
        decompositions=decompositions.table("default"),
        partition_fn=min_cut_rematerialization_partition,
    )
    compiled: Callable[..., Any] = backend(gm, example_inputs)
    return compiled


class _Learner(torch.fx.Interpreter):
    """Runs an ATen graph in eager, and checks each call before it runs."""

    def __init__(self, gm: torch.fx.GraphModule, file: Path) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self._file = file
        self._outside = partition.refused(gm, lambda node: "")

    def run_node(self, n: torch.fx.Node) -> Any:
        inside = isinstance(n.target, torch._ops.OpOverload) and n.name not in self._outside
        if n.op == "call_function" and inside and partition.gives_tensors(n):
            self._check(n)
        return super().run_node(n)

    def _check(self, node: torch.fx.Node) -> None:
        pattern = pattern_of(node)
        _count[pattern] += 1
        if _count[pattern] > CHECKS:
            return
        try:
            values = {argument: self.env[argument] for argument in node.all_input_nodes}
            reason = alone.check(node, values, OnnxrtOptions(), _CPU)
            if not reason and (also := alone.special(node, values)) is not None:
                reason = alone.check(node, also, OnnxrtOptions(), _CPU)
        except alone.CannotCheck:
            return
        line = json.dumps([pattern.operator, pattern.dtypes, pattern.arguments, reason]) + "\n"
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def collect(files: Iterable[Path]) -> Table:
    """Return the table of what is installed, from files of findings. One bad finding makes a translation wrong."""
    table = Table(installed())
    for file in files:
        for line in file.read_text().splitlines():
            try:
                operator, dtypes, arguments, reason = json.loads(line)
            except ValueError:  # the process was killed while it wrote
                continue
            pattern = CallPattern(operator, dtypes, arguments)
            table.known[pattern] = table.known.get(pattern, "") or reason
    return table
