"""The passes of a reduction, and what is asked of one.

A pass looks at a `minifier.candidate.graph_view.GraphView` and proposes `minifier.candidate.patch.Patch` objects. It
is a pure function of the view and a step number: no state, no randomness, no torch, no oracle. It promises

* **independence**: the patches of one proposal may be applied in any combination (of two that replace the same
  node the first counts); the search it names decides which;
* **progress**: each patch makes the case smaller in the order of `minifier.candidate.order` or does nothing (the engine
  takes nothing else), so that the reduction ends;
* **completeness**: a pass that is not coarse proposes every single edit it stands for, so that a fixpoint of all
  passes is 1-minimal;
* **modesty**: it does not know what fails. Whether the failure survives is for the oracle to say; a pass only
  explains, in its summary, why it may.

The engine runs the table from top to bottom, the steps of a pass in order, until a whole round changes nothing. The
passes of `PASSES` remove; those of `REPLACEMENTS` are late: they put something plainer in the place of what cannot be
removed, after which the first ones have their turn again. `fxminify.reduce` only removes. To add a pass, write the
function and a row here; `minify passes` prints the table.
"""

from __future__ import annotations

from . import arguments, dead, inputs, nodes, numbers, operators, outputs, parts, reroute, simpler
from .proposal import Pass, Proposal

PASSES: tuple[Pass, ...] = (
    Pass(
        "flatten",
        "Puts the subgraphs of all higher-order operators in their place, at once: few failures need one around.",
        operators.flatten,
        coarse=True,
    ),
    Pass(
        "slices",
        "Keeps few compute nodes, the rarest first; they read recorded values, so they compute what they did.",
        nodes.slices,
        coarse=True,
    ),
    Pass(
        "inputs",
        "Writes numbers into the graph and gives one tensor where several look alike.",
        inputs.propose,
    ),
    Pass(
        "outputs",
        "Returns fewer values: what remains is still computed in the same way.",
        outputs.propose,
    ),
    Pass(
        "replace-with-ancestor",
        "Lets readers of a value read the earliest one of the same shape and type that will do: paths get short.",
        reroute.replace_with_ancestor,
        coarse=True,
    ),
    Pass(
        "dead",
        "Removes nodes that nothing returned depends on, with side effects or without.",
        dead.propose,
    ),
    Pass(
        "inline",
        "Puts the subgraphs of one higher-order operator in its place: its nodes read what they were given.",
        operators.inline,
    ),
    Pass(
        "nodes",
        "Takes single compute nodes out; readers get the recorded value, so what is left computes what it did.",
        nodes.singles,
    ),
    Pass(
        "skip-to-operand",
        "Lets readers of a value read a direct input of its producer of the same shape and type: shapes stay.",
        reroute.skip_to_operand,
    ),
    Pass(
        "subgraph-replace-with-ancestor",
        "As replace-with-ancestor, inside the subgraph of a higher-order operator.",
        operators.subgraph_replace_with_ancestor,
        coarse=True,
    ),
    Pass(
        "subgraph-nodes",
        "As nodes, inside a subgraph: the operator is given the recorded value as one more operand.",
        operators.subgraph_nodes,
    ),
    Pass(
        "subgraph-skip-to-operand",
        "As skip-to-operand, inside a subgraph: what it returns keeps its shape and type.",
        operators.subgraph_skip_to_operand,
    ),
    Pass(
        "subgraph-zeros",
        "Makes values inside a subgraph zeros of their shape and type, so that a branch need not compute anything.",
        operators.subgraph_zeros,
    ),
    Pass(
        "subgraph-ends",
        "Takes away results and operands of a higher-order operator that nothing reads; its subgraph returns less.",
        operators.subgraph_ends,
    ),
    Pass(
        "subgraph-dead",
        "As dead, inside a subgraph: what nothing returned depends on goes.",
        operators.subgraph_dead,
    ),
)

REPLACEMENTS: tuple[Pass, ...] = (
    Pass(
        "reroute",
        "Lets readers of a value read any earlier result instead, as it is or by one reshape, expand, slice or select.",
        reroute.reroute,
        late=True,
    ),
    Pass(
        "parts",
        "Puts one part of a composite operation in its place, as torch takes it apart: often only that fails.",
        parts.propose,
        late=True,
    ),
    Pass(
        "simpler",
        "Calls the plain operation of the same form, such as add for any other of two tensors: shapes and types stay.",
        simpler.plain,
        late=True,
    ),
    Pass(
        "arguments",
        "Leaves out arguments that have a default, shortens lists, makes numbers 0: most failures need none of it.",
        arguments.propose,
        late=True,
    ),
    Pass(
        "numbers",
        "Makes numbers 1, else as short as will do: what matters of a number shows when it stays.",
        numbers.plain,
        late=True,
    ),
)

__all__ = ["PASSES", "REPLACEMENTS", "Pass", "Proposal"]


def listing() -> list[dict[str, str]]:
    """Rows for `minify passes`: the engine's passes in order, then the simplifications that follow them."""
    from ..reducer import simplify

    rows = [{"pass": p.name, "stage": "reduce", "what": p.summary} for p in PASSES]
    rows += [{"pass": p.name, "stage": "replace", "what": p.summary} for p in REPLACEMENTS]
    return rows + simplify.listing()
