"""There and back: a graph at the first level that can store it, the same bits from a document and as printed source."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from identical import difference
from torch import fx

from fxminify.backends.capture.graph_snapshot import GraphSnapshot, KeptInputs
from fxminify.backends.capture.lowering import AotCalls, CannotLower, lower
from fxminify.backends.provenance import libraries
from fxminify.backends.provenance.spec import BackendSpec
from fxminify.backends.running import ambient
from fxminify.backends.running.execution import copy_inputs
from fxminify.repro_templates.source.expressions import Unprintable
from fxminify.repro_templates.source.function import print_graph
from fxminify.repro_templates.source.higher_order import has_public_form
from fxminify.repro_templates.source.inputs import SIDE_FILE, print_inputs
from fxminify.store.document.case import Case, Graph, Node, to_json
from fxminify.store.document.decode import InvalidDocument, parse, validate
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.live import subclasses
from fxminify.store.live.build import build, build_value
from fxminify.store.live.encode import Encoder, Unsupported

SPEC = BackendSpec("eager", "registered", "eager")
FAILURE = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE)


@dataclass
class Outcome:
    """The result of a graph: the level at which it is stored, or why it is not, and the differences after loading."""

    level: str = ""
    refused: list[str] = field(default_factory=list)
    mismatch: str = ""
    unprinted: str = ""


def store(gm: fx.GraphModule, arguments: list[Any]) -> tuple[Outcome, Case, dict[str, bytes], fx.GraphModule]:
    """The case of a graph called with ``arguments``, and the module that it is the case of; `Unsupported` without."""
    snapshot = GraphSnapshot.take(gm, arguments)
    inputs = snapshot.inputs or KeptInputs.keep(arguments)
    out = Outcome()
    try:
        taken = snapshot.case(inputs.values, {}, SPEC)
        assert taken.case is not None
        validate(to_json(taken.case))
        out.level = "dynamo"
        return out, taken.case, dict(taken.blobs), snapshot.module()
    except (Unsupported, InvalidDocument) as refused:
        out.refused.append(str(refused))
    try:
        for low in lower(snapshot, inputs, snapshot.rng, lambda: SPEC, FAILURE, AotCalls()):
            taken = low.snapshot.case(low.inputs.values, {}, SPEC)
            assert taken.case is not None
            validate(to_json(taken.case))
            out.level = "aot"
            return out, taken.case, dict(taken.blobs), low.snapshot.module()
    except (Unsupported, InvalidDocument, CannotLower) as refused:
        out.refused.append(str(refused))
    raise Unsupported(" | ".join(out.refused))


def run(function: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    torch.manual_seed(1234)
    out = function(*inputs)
    return [list(out) if isinstance(out, list | tuple) else out, inputs]


def there_and_back(gm: fx.GraphModule, arguments: list[Any], folder: Path) -> Outcome:
    """Store a graph, read it back here and compare; leave in ``folder`` what another process compares."""
    try:
        out, case, blobs, module = store(gm, arguments)
    except Unsupported as refused:
        return Outcome("", [str(refused)])
    text = json.dumps(to_json(case), allow_nan=False)
    read = validate(parse(text))
    with ambient.applied({k: v for k, v in case.context.items() if k != "rng"}):
        expected = run(module, build(read, blobs)[1])
        out.mismatch = difference(expected, run(*build(read, blobs))) or ""
        out.unprinted, printed = as_source(read, blobs, folder, expected)
        out.mismatch = out.mismatch or printed
    encoder = Encoder()
    try:
        value = encoder.value(expected)
    except Unsupported:  # a result that is a tensor of a class of its own
        return out
    tensors, more = encoder.finish()
    results = to_json(Case(Graph((Node("output", "output", "output", (value,)),)), (), tensors))
    number = len(list(folder.glob("*.json")))
    (folder / f"{number}.json").write_text(json.dumps([text, results]))
    for key, data in (blobs | more).items():
        (folder / key).write_bytes(data)
    return out


def as_source(case: Case, blobs: dict[str, bytes], folder: Path, expected: list[Any]) -> tuple[str, str]:
    """Return why the case cannot be printed, and how the results of its source differ.

    Like a script, the source calls the operators of Dynamo where torch's function refuses the call: `torch.cond` takes
    no sizes, which a branch within a branch may have.
    """
    try:
        return _as_source(case, blobs, folder, expected, public=True)
    except RuntimeError:
        if not has_public_form(case.graph):
            raise
    return _as_source(case, blobs, folder, expected, public=False)


def _as_source(
    case: Case, blobs: dict[str, bytes], folder: Path, expected: list[Any], *, public: bool
) -> tuple[str, str]:
    try:
        source = print_graph(case, public=public)
        constants = {c.name: c.tensor for c in source.constants}
        inputs = print_inputs(case, blobs, source.parameters, constants=constants, embed=True)
    except Unprintable as refused:
        return str(refused), ""
    (folder / SIDE_FILE).write_bytes(inputs.data or b"")
    lines = ["import torch", *source.imports, *inputs.imports, *libraries.to_source(case.imports), source.text]
    lines += [s.layout() for s in (*inputs.statements, *inputs.constants)]
    lines.append(f"inputs = [{', '.join(inputs.arguments)}]")
    scope: dict[str, Any] = {"__file__": str(folder / "repro.py")}
    exec(compile("\n".join(lines), "printed", "exec"), scope)  # noqa: S102  the text under test
    torch.manual_seed(1234)
    made = scope[source.name](*copy_inputs(build(case, blobs)[1]))
    made = [made] if source.single else list(made)
    return "", f"as source: {found}" if (found := difference(expected[0], made)) else ""


def replay(folder: Path) -> list[str]:
    """In a process of its own: read every document of ``folder``, run it, compare with the stored results."""
    blobs = {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix != ".json"}
    problems = []
    for file in sorted(folder.glob("*.json")):
        text, results = json.loads(file.read_text())
        stored = validate(results)
        case = validate(parse(text))
        libraries.load(case.imports)
        expected = build_value(stored.graph.output.args[0], stored.tensors, blobs)
        gm, inputs = build(case, blobs)
        # As Dynamo calls a compiled graph.
        with ambient.applied({k: v for k, v in case.context.items() if k != "rng"}), subclasses.overrides_off(inputs):
            found = difference(expected, run(gm, inputs))
        if found is not None:
            problems.append(f"{file.name}: {found}")
    return problems
