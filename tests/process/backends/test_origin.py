"""Where a live backend comes from, and that no object, however odd, makes `spec_of` raise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop, eager
from torch._dynamo.repro.after_dynamo import wrap_backend_debug

from fxminify.backends.provenance import origin, registry, syntax
from fxminify.backends.provenance.catalog import listing
from fxminify.backends.provenance.origin import spec_of


class Raising:
    """Every look at it raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"do not look at {name}")


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare")

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return gm

    def __init__(self, state: object) -> None:
        self.state = state


ODD: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "int": lambda: 3,
    "object": object,
    "raising": Raising,
    "unhashable": lambda: Unhashable(object()),
    "empty": str,
    "list": list,
    "builtin": lambda: len,
    "class": lambda: Raising,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_objects_are_problems_or_specs_never_exceptions(name: str) -> None:
    odd = ODD[name]()
    spec = spec_of(odd)
    assert spec.problem or spec.how == "attribute"
    assert spec_of(odd).problem == spec.problem


def test_wrappers_of_dynamo_and_torch_compile_are_peeled_off() -> None:
    inner = torch._TorchCompileWrapper("eager", None, {"level": 1}, True)
    spec = spec_of(wrap_backend_debug(inner, "eager"))
    assert spec.to_source().arguments == 'backend="eager", options={"level": 1}, dynamic=True'


def test_inductor_options_and_modes_are_told_apart() -> None:
    by_mode = torch._TorchCompileInductorWrapper("max-autotune", None, None)
    by_options = torch._TorchCompileInductorWrapper(None, {"max_autotune": True, "epilogue_fusion": False}, None)
    assert spec_of(by_mode).to_source().arguments == 'backend="inductor", mode="max-autotune"'
    assert (
        spec_of(by_options).to_source().arguments
        == 'backend="inductor", options={"max_autotune": True, "epilogue_fusion": False}'
    )
    assert registry.wrap("inductor", {"max_autotune": True, "epilogue_fusion": False}, None, None) == by_options


def test_an_aot_autograd_object_that_was_already_called_is_seen_as_it_was_made() -> None:
    backend = aot_autograd(fw_compiler=boxed_nop)
    before = spec_of(backend)
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert spec_of(backend) == before
    assert before.to_source().arguments == "backend=aot_autograd(fw_compiler=boxed_nop)"


def test_a_backend_of_torch_that_is_no_registered_name_is_imported() -> None:
    spec = spec_of(functools.partial(eager))
    assert spec.to_source().imports == [
        "from functools import partial",
        "from torch._dynamo.backends.debugging import eager",
    ]


def test_a_registered_object_is_called_by_its_name() -> None:
    assert spec_of(eager).to_source().arguments == 'backend="eager"'


def test_globals_filled_in_later_are_not_importable(script: Callable[[str], ModuleType]) -> None:
    import team_of_this_test as team

    team.late = team.make()
    assert spec_of(team.late).how == "factory"
    assert spec_of(team.early).how == "attribute"


@pytest.fixture(autouse=True)
def _team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "team_of_this_test.py").write_text(
        "def make():\n    def inner(gm, inputs):\n        return gm\n    return inner\n\n\nearly = make()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "team_of_this_test", raising=False)


@pytest.mark.slow
def test_listing_has_a_row_for_every_backend() -> None:
    rows = {row["name"]: row for row in listing()}
    assert set(rows) == set(registry.registered())
    assert rows["inductor"] == {
        "name": "inductor",
        "origin": "torch",
        "distribution": "",
        "tags": [],
        "recreatable": True,
        "problem": "",
        "adapter": "inductor",
        "needs": "",
    }
    assert rows["eager"]["tags"] == ["debug"]


def test_registrations_are_read_from_source() -> None:
    import ast

    tree = ast.parse(
        "@register_backend\ndef a(gm, i): ...\n"
        "@torch._dynamo.register_backend(name='b')\ndef x(gm, i): ...\n"
        "register_backend(compiler_fn=f, name='c')\n"
        "register_backend(f, 'd')\n"
        "register_backend(name='e')(f)\n"
        "g = register_experimental_backend(f)\n"
        "try:\n    register_backend(h)\nexcept ImportError:\n    pass\n"
        "def later():\n    register_backend(f, name='no')\n"
        "if __name__ == '__main__':\n    register_backend(f, name='neither')\n"
        "register_backend(f, name=computed)\n"
    )
    assert syntax.registered_names(tree) == {"a", "b", "c", "d", "e", "f", "h"}


def test_express_refuses_what_would_need_carrying() -> None:
    from fxminify.backends.provenance.modules import CannotEmbed

    assert origin.express((1, torch.int8)) == {"tuple": [1, {"import": ["torch", "int8"]}]}
    with pytest.raises(CannotEmbed):
        origin.express(object())
