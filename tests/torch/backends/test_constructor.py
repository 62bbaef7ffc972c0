"""The call that makes an instance again, from the source of its class."""

from typing import Any

import pytest

from fxminify.backends.provenance.expression import constructor_arguments
from fxminify.backends.provenance.origin import spec_of


class Keeps:
    def __init__(self, level: int, *, names: tuple[str, ...] = ()) -> None:
        """Statements of every form that keep an argument."""
        self.level: int = level
        self._names, self.seen = names, 0

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.seen += 1
        return gm.forward

    def lower(self, gm: Any, inputs: Any) -> Any:
        return gm.forward


class Collects:
    def __init__(self, level: int, **options: int) -> None:
        self.level = level
        self.options = options


class Inherits(Keeps):
    pass


class Derives:
    def __init__(self, level: int) -> None:
        self.level = level + 1


class Settles:
    LEVEL = 4

    def __init__(self, level: int | None = None, names: Any = None, limit: Any = 1) -> None:
        self.level = level or self.LEVEL
        self.names = list(names or [])
        self.limit = 9 if limit is None else limit


class Rebinds:
    def __init__(self, level: int) -> None:
        level = abs(level)
        self.level = level


class Fresh:
    def __init__(self) -> None:
        self.cache: dict[str, int] = {}


def used() -> Keeps:
    made = Keeps(2)
    made.seen = 5
    made.level = 3
    return made


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Keeps(4), {"level": 4}),
        (Keeps(4, names=("a",)), {"level": 4, "names": ("a",)}),
        (used(), {"level": 3}),
        (Inherits(1), {"level": 1}),
        (Collects(1, depth=2), {"level": 1, "depth": 2}),
        (Fresh(), {}),
        (Settles(), {"level": 4, "names": []}),
        (Settles(2, ("a",), None), {"level": 2, "names": ["a"], "limit": 9}),
        (Derives(1), None),
        (Rebinds(1), None),
        (ValueError("no __init__ to read"), None),
    ],
)
def test_arguments(value: object, expected: dict[str, Any] | None) -> None:
    assert constructor_arguments(value) == expected


def test_an_instance_and_a_method_of_one_are_made_again() -> None:
    assert spec_of(Keeps(4)).to_source().arguments == "backend=Keeps(level=4)"
    assert spec_of(Keeps(4).lower).to_source().arguments == "backend=Keeps(level=4).lower"


def test_an_instance_that_does_not_keep_what_it_was_made_with_is_refused() -> None:
    class Local(Derives):
        def __call__(self, gm: Any, inputs: Any) -> Any:
            return gm.forward

    assert "assign it to a module-level name" in spec_of(Local(1)).problem
