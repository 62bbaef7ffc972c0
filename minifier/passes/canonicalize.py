"""The simplifications: what makes a reduced case plain, one small function each.

A simplification is a generator. It yields candidates, the plainest first, is sent whether the candidate still fails in
the same way, and returns the plainest case it reached. It promises

* **order**: plainer is what the table and the functions' sentences say, never what takes fewer bytes;
* **removal of nothing**: it keeps every compute node, so none can undo the engine;
* **modesty**: it knows nothing of oracles, and asks all at once before it asks one by one;
* **rest**: where every answer was yes, it proposes nothing more for what it returned.

`fxminify.minifier.reducer.simplify` runs the table from top to bottom, after it has asked for all of it at once.
"""

from __future__ import annotations

from .candidates import Candidates, Simplification, Storages
from .dimensions import smaller_dimensions
from .dtypes import plain_dtypes
from .duplicates import one_input_twice
from .layouts import plain_layouts
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
SURROUNDINGS: tuple[Simplification, ...] = (
    fewer_calls,
    forward_only,
    no_gradients,
    plain_tensors,
    default_context,
    default_arguments,
    static_dimensions,
)

#: In the order they run. `fxminify.minifier.passes.listing` shows them after the engine's passes.
SIMPLIFICATIONS: tuple[Simplification, ...] = (
    *SURROUNDINGS,
    plain_values,
    plain_layouts,
    plain_dtypes,
    fewer_values,
    smaller_dimensions,
    plain_numbers,
    one_input_twice,
)

#: A graph may need its sizes to be a program at all.
ALL_BUT_SIZES = tuple(s for s in SIMPLIFICATIONS if s is not smaller_dimensions)

__all__ = ["ALL_BUT_SIZES", "SIMPLIFICATIONS", "SURROUNDINGS", "Candidates", "Simplification", "Storages", "name_of"]


def name_of(simplification: Simplification) -> str:
    """The name it has in logs and listings."""
    return simplification.__name__.replace("_", "-")
