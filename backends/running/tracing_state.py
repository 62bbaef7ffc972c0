"""Restore Dynamo's state of a compilation after a backend failed, so that another backend can compile the graph.

A backend that traces the graph again adds symbols, replacements and guards to the shape environment of the frame.
Dynamo builds the frame's guards from all of them, which fails for a symbol that comes from no input.
"""

from __future__ import annotations

import copy
from typing import Any

from torch._guards import TracingContext
from torch.utils._ordered_set import OrderedSet

#: Attributes of the tracing context that AOTAutograd sets for its compilers.
_LEFT_BY_AOT = (
    "aotautograd_guards", "fakify_first_call", "fw_metadata", "output_strides", "params_flat",
    "params_flat_unwrap_subclasses", "params_unwrapped_to_flat_index",
)  # fmt: skip
#: Versions of the shape environment, which are keys of its caches and of the caches of symbolic integers.
_VERSIONS = ("_version_counter", "_replacements_version_counter")


class TracingState:
    """A copy of the state of the frame that Dynamo compiles: guards, shape environment, attributes set by AOTAutograd.

    Uses private API of torch. Outside of a compilation by Dynamo there is no such state.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Any, dict[str, Any]]] = []
        if (context := TracingContext.try_get()) is None:
            return
        guards = context.guards_context
        self._keep(context, _LEFT_BY_AOT)
        self._keep(guards, vars(guards))
        self._keep(guards.dynamo_guards, vars(guards.dynamo_guards))
        if (env := getattr(context.fake_mode, "shape_env", None)) is not None:
            self._keep(env, set(vars(env)) - {*_VERSIONS, "tracked_fakes"})

    def _keep(self, owner: Any, names: Any) -> None:
        self._kept.append((owner, {name: _copied(getattr(owner, name)) for name in names if hasattr(owner, name)}))

    def restore(self) -> None:
        """Restore the state. This can be done several times."""
        for owner, values in self._kept:
            for name, value in values.items():
                setattr(owner, name, _copied(value))
            for version in _VERSIONS:  # a version that came twice would let caches answer for the state that is gone
                if hasattr(owner, version):
                    setattr(owner, version, getattr(owner, version) + 1)


def _copied(value: Any) -> Any:
    """A copy of a container and of the containers in it. Other objects are shared."""
    if isinstance(value, dict):
        found = copy.copy(value)  # keeps the class: defaultdict, Counter
        found.update({k: _copied(v) for k, v in value.items()})
        return found
    if isinstance(value, list):
        return [_copied(v) for v in value]
    return type(value)(value) if isinstance(value, set | OrderedSet) else value
