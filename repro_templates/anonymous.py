"""A case under other names: what a person called inputs, layers and attributes does not leave with the script.

Values are named after their operator and inputs by number; in the error the old names are replaced by the new ones, and
only frames of torch stay. What must be imported keeps its name: the backend, operators, packages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..store.document.case import Case, Graph, Node, map_refs, tag
from ..store.failure import Failure
from .comment import Findings
from .context import Header
from .source.expressions import Unprintable
from .source.function import print_graph


def anonymous(case: Case, header: Header) -> tuple[Case, Header]:
    """``case`` with other names, and ``header`` without the old ones."""
    renaming = _Renaming()
    graph = renaming.graph(case.graph)
    earlier = tuple({renaming.names.get(name, name): value for name, value in call.items()} for call in case.earlier)
    failure = _without(header.failure, renaming.words)
    first = {**header.first, "node": "a value"} if header.first else None
    renamed = replace(case, graph=graph, earlier=earlier)
    return renamed, replace(_with_sentences(header, case, renamed, renaming.words), failure=failure, first=first)


def _with_sentences(header: Header, case: Case, renamed: Case, words: Mapping[str, str]) -> Header:
    """``header`` with the names of ``renamed`` in its sentences; without sentences if the names cannot be printed."""
    try:
        printed = [print_graph(each).parameters for each in (case, renamed)]
    except Unprintable:
        return replace(header, matters=(), passing_variant=(), findings=Findings())
    names = {**words, **dict(zip(*printed, strict=True))}
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.])(?:{known})(?!\w)(?!(?<=\ba) )")  # "a" before a space is an article

    def clean(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(pattern.sub(lambda match: names[match[0]], text) for text in texts) if names else texts

    found = header.findings
    findings = replace(
        found, necessary=clean(found.necessary), passes_with=clean(found.passes_with), free=clean(found.free),
        also_fails=clean(found.also_fails),
    )  # fmt: skip
    return replace(
        header, matters=clean(header.matters), passing_variant=clean(header.passing_variant), findings=findings
    )


class _Renaming:
    """New names: ``names`` maps old names of nodes to new ones, ``words`` all words that may stand in an error."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.words: dict[str, str] = {}
        self.count = 0

    def graph(self, graph: Graph) -> Graph:
        paths = {path: f"attribute_{self._next()}" for path in graph.attrs}
        self.words |= paths
        nodes = tuple(self.node(node, paths) for node in graph.nodes)
        attrs = {
            paths[path]: {"graph": self.graph(attr["graph"])} if "graph" in attr else attr
            for path, attr in graph.attrs.items()
        }
        return Graph(nodes, attrs, graph.training)

    def node(self, node: Node, paths: Mapping[str, str]) -> Node:
        target = node.target
        if node.op == "placeholder":
            new = target = f"input_{self._next()}"
            self.words[str(node.target)] = new
        elif node.op in ("get_attr", "call_module"):
            target = _path(str(node.target), paths)
            new = f"value_{self._next()}"
        else:
            new = f"{_operator(target)}_{self._next()}" if node.op != "output" else node.name
        self.names[node.name] = self.words[node.name] = new

        def renamed(value: Any) -> Any:
            return map_refs(value, lambda name: {"ref": self.names.get(name, name)})

        meta = {key: value for key, value in node.meta.items() if key in ("dtype", "shape")}
        return replace(node.map_values(renamed), name=new, target=target, meta=meta, type=None)

    def _next(self) -> int:
        self.count += 1
        return self.count


def _path(target: str, paths: Mapping[str, str]) -> str:
    """The new path of an attribute, or of what lies inside of a module that is one."""
    parts = target.split(".")
    for cut in range(len(parts), 0, -1):
        if (new := paths.get(".".join(parts[:cut]))) is not None:
            return ".".join([new, *parts[cut:]])
    return target


def _operator(target: Any) -> str:
    """The bare name of what a node calls."""
    named = target[tag(target)] if isinstance(target, dict) and tag(target) else target
    words = re.findall(r"[A-Za-z]\w*", str(named).removesuffix(".default"))
    return str(words[-1]).lower() if words else "value"


def _without(failure: Failure, words: Mapping[str, str]) -> Failure:
    """``failure`` without the names ``words``, and without frames of files that are not torch's."""
    known = sorted((w for w in words if len(w) > 1), key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, known))})(?![\w])") if known else None

    def clean(text: str) -> str:
        return pattern.sub(lambda match: words[match[0]], text) if pattern else text

    return replace(
        failure,
        message=clean(failure.message),
        causes=tuple((kind, clean(text)) for kind, text in failure.causes),
        frames=tuple(frame for frame in failure.frames if frame.file.startswith("torch/")),
        diagnostics=clean(failure.diagnostics),
    )
