"""Hints: nodes that a failure names. The search asks about them first (`minifier.passes.searches.guided`).

A message may name a node (``While executing %relu_1``), a line of the program or an operator (``aten.relu.default``,
``Could not find an implementation for Trilu(14)``). The name of a frame of the backend may contain an operator
(``lower_grid_sample``). A wrong hint costs a query or two and does not change what can be removed.

Operators are compared without case, underscores and the suffix of in-place forms, so ``GridSample`` is ``grid_sample``.
A name that is written like an English word counts little, and less after the first line of a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ...store.document.case import Case, Node, tag, target_name
from ...store.failure import ILL_CONDITIONED, VALUES, Failure, FailureKind
from ..candidate.graph_view import leaves, reached
from ..candidate.hop_calls import hop_calls, subgraph

#: The most hints of a case.
MOST = 3
#: The most characters of a text that are read: compilers print whole programs.
LONGEST = 20_000

#: Above this belief, an operator certainly is named.
CERTAIN = 1.6
#: The belief that a word which is written as in English is an operator: in the first line of a message, and after it,
#: where compilers print their warnings.
WORD, ASIDE = 0.5, 0.25

#: Names are similar if one contains the other and both have at least so many characters.
PART = 5

#: The arguments of a node as FX prints them. Names in them are no hints.
_ARGUMENTS = re.compile(r"\(args = \(.*?\), kwargs = \{.*?\}\)")
#: A name in a text, with the characters around it: ``%relu_1``, ``'aten::relu'``, ``torch.relu(``, ``Relu``.
_NAME = re.compile(r"([%'\"`]?)\b([A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*)([('\"`]?)")
_LINE = re.compile(r"File \"([^\"]+)\", line (\d+)")
_OUTPUT = re.compile(r"output (\d+)")
_NAMESPACES = frozenset({"aten", "prims", "prim", "torch", "ops", "onnx", "functional", "target", "node", "op"})


def named(
    case: Case, failures: Iterable[Failure], first: str | None = None, *, above: float = 0.0
) -> tuple[tuple[str, ...], ...]:
    """At most `MOST` groups of compute nodes of ``case`` that ``failures`` name, the most believable first.

    A group of ``first``, the first node whose value differs from eager, comes before them. Only what is believed more
    than ``above`` counts.
    """
    nodes = case.graph.compute
    beliefs: dict[tuple[str, ...], float] = {}
    for failure in failures:
        for group, belief in _hints(case, nodes, failure):
            if belief > above:
                beliefs[group] = max(belief, beliefs.get(group, 0.0))
    order = sorted(beliefs, key=lambda g: (-beliefs[g], len(g), g))
    groups = [*([(first,)] if first is not None else []), *[g for g in order if len(g) * 2 <= len(nodes)][:MOST]]
    return tuple(_with_subgraphs(case, group) for group in groups)


def blamed(case: Case, failures: Iterable[Failure], first: str | None) -> frozenset[str]:
    """Names of nodes that certainly cause the failure: the operator that an error names, or the ``first`` wrong node.

    A wrong stride or dtype blames no node, because nearly any operator can show it. Neither does a message that names
    several operators.
    """
    found: set[str] = set()
    if first is None and len(case.graph.compute) == 1:
        first = case.graph.compute[0].name
    for failure in failures:
        if failure.kind is FailureKind.DIVERGENCE:
            if first is not None and failure.detail.get("class") in (*VALUES, ILL_CONDITIONED):
                found.add(first)
            continue
        groups = [group for group, belief in _hints(case, case.graph.compute, failure) if belief > CERTAIN]
        kinds = {plain(target_name(n)) for n in case.graph.compute for group in groups if n.name in group}
        found |= {name for group in groups for name in group} if len(kinds) == 1 else set()
    return frozenset(found)


def _with_subgraphs(case: Case, group: tuple[str, ...]) -> tuple[str, ...]:
    """``group`` and the nodes of the subgraphs that it calls, which replace the operator when it is inlined."""
    taken = {
        source for n in case.graph.compute if n.name in group and target_name(n) == "getitem" for source in n.inputs
    }
    called = [path for call in hop_calls(case.graph) if call.node.name in taken.union(group) for path in call.paths]
    within = [n.name for path in called for n in subgraph(case.graph, (path,)).compute]
    return tuple(dict.fromkeys((*group, *within)))


def _hints(case: Case, nodes: Sequence[Node], failure: Failure) -> Iterator[tuple[tuple[str, ...], float]]:
    """Groups that one failure names, each with a belief, which is a little higher for names that come first."""
    if failure.kind is FailureKind.DIVERGENCE:
        yield from _above_output(case, failure)
        return
    text = "\n".join([failure.message, *(m for _, m in reversed(failure.causes)), failure.diagnostics])[:LONGEST]
    by_name = {n.name: n for n in nodes}
    by_kind: dict[str, list[str]] = {}
    for n in nodes:
        by_kind.setdefault(plain(target_name(n)), []).append(n.name)
    marked: list[str] = []
    kinds: dict[str, float] = {}
    text = _ARGUMENTS.sub("", text)
    first_line = len(text.partition("\n")[0])
    for match in _NAME.finditer(text):
        before, name, after = match.groups()
        word, fading = WORD if match.start() < first_line else ASIDE, 0.01 * min(len(kinds), 40)
        if before == "%" and name in by_name:
            marked.append(name)
        parts = re.split(r"\.|::", name)
        operator = bool(before or after or len(parts) > 1 or "_" in name or name[0].isupper() or name[-1].isdigit())
        for part in parts:
            belief = 2.0 - fading if operator else word * (1.0 - fading)
            kind = plain(part)
            if kind not in by_kind and operator:
                kind, belief = _alike(kind, by_kind), belief - 0.5
            if kind in by_kind and kind not in _NAMESPACES:
                kinds[kind] = max(belief, kinds.get(kind, 0.0))
    for i, name in enumerate(dict.fromkeys(marked)):
        # If the graph was traced anew, another node may have the name: its operator must be named as well.
        if plain(target_name(by_name[name])) in kinds:
            yield (name,), 4.0 - 0.01 * min(i, 40)
    for file, line in reversed(_LINE.findall(text)):
        place = f"{file.rpartition('/')[2]}:{line} "
        if here := tuple(n.name for n in nodes if str(n.meta.get("stack", "")).rpartition("/")[2].startswith(place)):
            yield here, 3.0
            break
    for i, frame in enumerate(reversed(failure.frames)):
        function = plain(frame.function)
        kind = function if function in by_kind else _alike(function, by_kind)
        if kind in by_kind and kind not in kinds and kind not in _NAMESPACES:
            kinds[kind] = (1.4 if kind == function else 1.0) - 0.01 * min(i, 40)
    for kind, belief in kinds.items():
        yield tuple(by_kind[kind]), belief


def _alike(name: str, kinds: Iterable[str]) -> str:
    """Return the name in ``kinds`` that is most similar to ``name``, or an empty text: ``cdist`` for ``cdistforward``.

    Two names are similar if one is a part of the other and both have at least `PART` characters.
    """
    found = [k for k in kinds if min(len(k), len(name)) >= PART and (k in name or name in k)]
    return max(found, key=lambda k: (min(len(k), len(name)), k), default="")


def _above_output(case: Case, failure: Failure) -> Iterator[tuple[tuple[str, ...], float]]:
    """The group of nodes that the wrong output of a divergence depends on, with its belief."""
    place = _OUTPUT.fullmatch(str(failure.detail.get("where", "")))
    values = list(leaves(case.graph.output.args[0]))
    if place is not None and int(place[1]) < len(values) and tag(value := values[int(place[1])]) == "ref":
        above = reached({n.name: n.inputs for n in case.graph.nodes}, [value["ref"]])
        yield tuple(n.name for n in case.graph.compute if n.name in above), 1.0


def plain(name: str) -> str:
    """``gridsample`` for ``GridSample``, ``grid_sample``, ``grid_sample_`` and ``grid_sample_3``, to compare names."""
    return re.sub(r"_\d+$", "", name).replace("_", "").lower()
