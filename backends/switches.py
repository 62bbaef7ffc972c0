"""`Switch`: a part of a compiler that can be turned off, or done in another way, for one compilation.

An adapter lists the switches of its compiler. `minify explain` turns each of them for a minimal case. The part whose
switch makes the failure go is where it arises. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..store.document.case import Case


class CannotSwitch(Exception):
    """The case leaves no room for a switch: it already says otherwise."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A way to turn off the ``part`` of a compiler, a noun in words such as ``vectorised C++ code``.

    ``settings`` are entries of modules of settings, by module: ``{"acme.config": {"cpp.width": 1}}``.
    ``options`` are entries of ``torch.compile(options=...)``, plain values or dictionaries of such.
    """

    part: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """The lines to put into a program, or the argument of `torch.compile`."""
        out = [f"{module}.{key} = {value!r}" for module, of in self.settings.items() for key, value in of.items()]
        return out + ([f"torch.compile(..., options={dict(self.options)!r})"] if self.options else [])

    def applied(self, case: Case) -> Case:
        """``case`` with this switch turned. Raises `CannotSwitch`."""
        config = {module: dict(of) for module, of in case.context.get("config", {}).items()}
        for module, of in self.settings.items():
            config.setdefault(module, {}).update(of)
        context = case.context | ({"config": config} if config else {})
        if not self.options:
            return replace(case, context=context)
        backend = case.backend | {"options": _merged(case.backend.get("options"), self.options)}
        return replace(case, context=context, backend=backend)


def together(switches: Sequence[Switch]) -> Switch:
    """Return a switch that turns all of ``switches``."""
    settings: dict[str, dict[str, Any]] = {}
    options: dict[str, Any] = {}
    for switch in switches:
        for module, of in switch.settings.items():
            settings.setdefault(module, {}).update(of)
        options |= switch.options
    return Switch(" and ".join(switch.part for switch in switches), settings, options)


def _merged(given: Any, more: Mapping[str, Any]) -> Any:
    """The expression ``given`` of a dictionary, or None, with the entries ``more``; see `provenance.expression`."""
    if given is None:
        pairs = []
    elif isinstance(given, dict) and set(given) == {"dict"}:
        pairs = [pair for pair in given["dict"] if pair[0] not in more or isinstance(more[pair[0]], Mapping)]
    else:
        raise CannotSwitch("the options of the backend are not a dictionary")
    before = {pair[0]: pair[1] for pair in pairs if isinstance(pair[0], str)}
    kept = [pair for pair in pairs if pair[0] not in more]
    new = [[k, _merged(before.get(k), v) if isinstance(v, Mapping) else v] for k, v in more.items()]
    return {"dict": [*kept, *new]}
