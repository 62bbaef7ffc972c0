"""Call operators as programs call them: ``torch.amax`` in place of ``torch.ops.aten.amax.default``.

Parts of a composite operation are overloads of ATen, also in a graph of Dynamo, where no program puts them. A graph
that AOTAutograd traces is printed with the names of programs anyway.
"""

from __future__ import annotations

from dataclasses import replace

from ...repro_templates.source.expressions import call_in_programs
from ...repro_templates.source.function import is_lowered
from ...store.document.case import Case, Node, every_node, tag
from ..candidate.graph_view import Storages
from .candidates import Candidates, Edit, together


def calls_of_programs(case: Case, storages: Storages) -> Candidates:
    """Name operators as programs do, where the backend takes graphs of Dynamo."""
    return together(case, [] if is_lowered(case) else [_renaming(node) for node in every_node(case.graph)])


def _renaming(node: Node) -> Edit:
    renamed = _renamed(node)
    return lambda case: replace(case, graph=case.graph.map_nodes(lambda n: renamed if n is node else n))


def _renamed(node: Node) -> Node:
    target = call_in_programs(node.target["op"]) if isinstance(node.target, dict) and "op" in node.target else None
    if isinstance(target, dict):
        return replace(node, target=target)
    if target is not None and node.args and tag(node.args[0]) == "ref":
        return replace(node, op="call_method", target=target)
    return node
