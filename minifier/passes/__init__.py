"""The table of passes, and the contract of a pass.

A pass looks at a `minifier.candidate.graph_view.GraphView` and proposes candidates. It is a pure function of the view
and a step number: no state, no randomness, no torch, no oracle. The view also tells which candidates eager accepts
(`GraphView.valid`). A worker is asked then, but no backend, and the answer is a function of the case. The table has
three stages:

* ``remove``: the case gets smaller. A pass proposes `minifier.candidate.patch.Patch` objects and a search over them.
* ``replace``: something plainer replaces what cannot be removed. These passes run when no pass of the first stage can
  remove anything. After each change the first stage runs again.
* ``canonicalize``: the inputs, sizes, types and settings that are left are made plain. These passes run once, at the
  end, in the order of the table.

A pass of the first two stages promises

* **independence**: the patches of one proposal may be applied in any combination (if two replace the same node, the
  first one counts); the search of the proposal finds out which;
* **progress**: each patch makes the case smaller in the order of `minifier.candidate.order` or does nothing. The
  shrinker accepts nothing else, so that the reduction ends;
* **completeness**: a pass that is not ``one_shot`` proposes every single edit it stands for, so that a fixpoint of all
  passes is 1-minimal;
* **modesty**: it does not know what fails. Only the oracle says whether the failure is still there. The summary of a
  pass says why the failure is likely to survive it.

A canonicalization pass is a generator. It yields whole candidates, the plainest first, is sent whether the candidate
still fails in the same way, and returns the plainest case it reached. The shrinker accepts its candidates even if they
are larger, as long as they fail. It promises

* **order**: plainer is what its docstring says, never what takes fewer bytes;
* **removal of nothing**: it keeps every compute node, so none can undo the first two stages;
* **modesty**, as above; it asks for everything at once before it asks one by one;
* **rest**: if every answer was yes, it proposes nothing for the case it returned.

Most failures do not depend on anything that the last stage changes. So its first rows apply the whole stage at once,
then all of it except ranks, all of it except sizes, and only the settings around the graph.

To add a pass, write the function and a row here; `minify passes` prints the table. A distribution of your own adds
passes through the entry-point group ``fxminify.passes``: see `installed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...store import extensions
from . import arguments, ends, nodes, operators, parts, ranks, reroute, simpler, together
from .calls import calls_of_programs
from .candidates import Canonicalize
from .dimensions import fewer_dimensions, smaller_dimensions
from .dtypes import plain_dtypes
from .duplicates import one_input_twice
from .held import held_as_inputs
from .layouts import plain_layouts
from .proposal import Pass, Proposal, Stage, canonical, each, name_of
from .surroundings import (
    default_arguments,
    default_context,
    fewer_calls,
    forward_only,
    no_gradients,
    plain_tensors,
    static_dimensions,
)
from .values import fewer_values, plain_numbers, plain_values

#: What stands around the graph and its tensors: it rarely matters, and none of it changes what is computed.
SURROUNDINGS: tuple[Canonicalize, ...] = (
    fewer_calls,
    forward_only,
    no_gradients,
    plain_tensors,
    default_context,
    default_arguments,
    static_dimensions,
)

CANONICALIZATIONS: tuple[Canonicalize, ...] = (
    *SURROUNDINGS,
    held_as_inputs,
    plain_values,
    plain_layouts,
    plain_dtypes,
    fewer_values,
    smaller_dimensions,
    plain_numbers,
    fewer_dimensions,
    one_input_twice,
)

#: Many operations take tensors of one number of dimensions only.
_ALL_BUT_RANKS = tuple(c for c in CANONICALIZATIONS if c is not fewer_dimensions)

#: A graph may need its sizes to be a program at all.
_ALL_BUT_SIZES = tuple(c for c in _ALL_BUT_RANKS if c is not smaller_dimensions)

#: In the order in which they run.
PASSES: tuple[Pass, ...] = (
    Pass(
        "flatten",
        "Puts the subgraphs of all higher-order operators in their place, at once: few failures need one around.",
        operators.flatten,
        one_shot=True,
    ),
    Pass(
        "slices",
        "Keeps few compute nodes, the rarest first; they read recorded values, so they compute what they did.",
        nodes.slices,
        one_shot=True,
    ),
    Pass(
        "inputs",
        "Writes numbers into the graph and gives one tensor where several look alike.",
        ends.inputs,
    ),
    Pass(
        "outputs",
        "Returns fewer values: what remains is still computed in the same way.",
        ends.outputs,
    ),
    Pass(
        "replace-with-ancestor",
        "Lets readers of a value read the earliest one of the same shape and type that will do: paths get short.",
        reroute.replace_with_ancestor,
        one_shot=True,
    ),
    Pass(
        "dead",
        "Removes nodes that nothing returned depends on, with side effects or without.",
        ends.dead,
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
        one_shot=True,
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
    Pass(
        "reroute",
        "Lets readers of a value read any earlier result instead, as it is or by one reshape, expand, slice or select.",
        reroute.reroute,
        stage=Stage.REPLACE,
    ),
    Pass(
        "read-past",
        "Lets readers of a value read an operand of its producer, of any shape or type that they take.",
        reroute.read_past,
        stage=Stage.REPLACE,
        late=True,
    ),
    Pass(
        "parts",
        "Puts one part of a composite operation in its place, as torch takes it apart: often only that fails.",
        parts.propose,
        stage=Stage.REPLACE,
    ),
    Pass(
        "simpler",
        "Calls the plain operation of the same form, such as add for any other of two tensors: shapes and types stay.",
        simpler.plain,
        stage=Stage.REPLACE,
    ),
    Pass(
        "arguments",
        "Leaves out arguments that have a default, shortens lists, makes numbers 0: most failures need none of it.",
        arguments.propose,
        stage=Stage.REPLACE,
    ),
    Pass(
        "numbers",
        "Makes numbers 1, else as short as will do: what matters of a number shows when it stays.",
        arguments.numbers,
        stage=Stage.REPLACE,
    ),
    Pass(
        "arguments-with-sizes",
        "Leaves out arguments, and makes numbers small, together with the sizes that this changes, such as channels.",
        together.with_arguments,
        stage=Stage.CANONICALIZE,
    ),
    canonical(
        *CANONICALIZATIONS,
        name="everything",
        summary="All of what follows at once: most failures depend on none of it.",
    ),
    canonical(
        *_ALL_BUT_RANKS,
        name="all-but-ranks",
        summary="All but fewer dimensions at once: an operation may need a rank.",
    ),
    canonical(
        *_ALL_BUT_SIZES,
        name="all-but-sizes",
        summary="All but smaller and fewer dimensions at once: a graph may need its sizes.",
    ),
    canonical(
        *SURROUNDINGS,
        name="surroundings",
        summary="Those at once that leave the tensors as they are.",
    ),
    *map(canonical, CANONICALIZATIONS[: CANONICALIZATIONS.index(fewer_dimensions)]),
    Pass(
        "sizes-with-sizes",
        "Makes sizes smaller together with the sizes and numbers that eager requires to change with them.",
        together.with_sizes,
        stage=Stage.CANONICALIZE,
    ),
    *map(canonical, CANONICALIZATIONS[CANONICALIZATIONS.index(fewer_dimensions) :]),
    Pass(
        "ranks",
        "Takes single dimensions of size 1 from some tensors, where arguments follow; joins neighbouring dimensions.",
        ranks.fewer_ranks,
        stage=Stage.CANONICALIZE,
    ),
    Pass(
        "defaults",
        "Leaves out arguments that have become equal to their defaults.",
        arguments.at_default,
        stage=Stage.CANONICALIZE,
    ),
    canonical(calls_of_programs),
)

__all__ = [
    "CANONICALIZATIONS", "PASSES", "InstalledPasses", "Pass", "Proposal", "Stage", "canonical", "each", "in_stage",
    "in_words", "installed", "name_of",
]  # fmt: skip


def in_stage(*stages: Stage, passes: Iterable[Pass] = PASSES) -> tuple[Pass, ...]:
    """The rows of some stages."""
    return tuple(p for p in passes if p.stage in stages)


@dataclass(frozen=True, slots=True)
class InstalledPasses:
    """The whole table, with the passes of other distributions. ``sources`` has the distribution of each of those, by
    the name of the pass, ``problems`` what could not be loaded."""

    passes: tuple[Pass, ...]
    sources: dict[str, str]
    problems: tuple[str, ...]


#: What the passes of a stage do, for a person who watches.
_IN_WORDS = {
    Stage.REMOVE: "removing what is not needed",
    Stage.REPLACE: "trying simpler operators",
    Stage.CANONICALIZE: "making what is left plain",
}


def in_words(name: str) -> str:
    """Return the description of the pass ``name`` for progress messages, or ``name`` itself if no such pass exists."""
    return next((_IN_WORDS[row.stage] for row in installed().passes if row.name == name), name)


def installed() -> InstalledPasses:
    """`PASSES`, and at the end of each stage what the entry points of the group ``fxminify.passes`` name.

    An entry point is a `Pass` or a sequence of them. They run in the order of the names of distributions, entry points
    and passes, so a reduction does not depend on the order of installation.
    """
    found: list[tuple[str, str, Pass]] = []
    problems: list[str] = []
    taken = {p.name for p in PASSES}
    for extension in sorted(extensions.installed(extensions.PASSES), key=lambda e: (e.source, e.name)):
        source, loaded = extension.source, extension.object
        if extension.problem:
            problems.append(f"{extension.name} of {source}: {extension.problem}")
            continue
        try:
            rows = sorted((loaded,) if isinstance(loaded, Pass) else loaded, key=lambda p: p.name)
            if wrong := [row for row in rows if not isinstance(row, Pass)]:
                raise TypeError(f"{wrong[0]!r} is no Pass")
            if twice := [row.name for row in rows if row.name in taken]:
                raise ValueError(f"there is a pass called {twice[0]!r} already")
        except Exception as error:  # noqa: BLE001  whatever a foreign package raises: the passes of ours still run
            problems.append(f"{extension.name} of {source}: {type(error).__name__}: {error}")
            continue
        for row in rows:
            taken.add(row.name)
            found.append((row.name, source, row))
    more = [row for _, _, row in found]
    table = tuple(p for stage in Stage for p in (*in_stage(stage), *in_stage(stage, passes=more)))
    return InstalledPasses(table, {name: source for name, source, _ in found}, tuple(problems))
