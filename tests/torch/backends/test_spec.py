"""How a backend is written down as JSON, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fxminify.backends.provenance.embedded_source import EmbeddedSource
from fxminify.backends.provenance.spec import BackendSpec, CannotLoad


def test_json_round_trip_keeps_everything() -> None:
    spec = BackendSpec(
        name="b",
        how="source",
        target={"embedded": "b"},
        options={"dict": [["level", 2], ["dtype", {"import": ["torch", "float32"]}]]},
        dynamic=False,
        source=EmbeddedSource(("import torch",), "b = None", "train.py"),
        search_path=("/somewhere",),
    )
    again = BackendSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert (again, again.search_path) == (spec, spec.search_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("module", "os; import x"),
        ("module", 3),
        ("entry_point", "a:b:c d"),
        ("target", {"import": ["os", "system('x')"]}),
        ("target", {"call": {"func": 1}}),
        ("target", {"eval": "1"}),
        ("target", {"embedded": "a b"}),
        ("target", float("nan")),
        ("options", [1]),
        ("mode", 1),
        ("dynamic", 1),
        ("search_path", "/x"),
        ("source", {"text": "x"}),
        ("surprise", 1),
    ],
)
def test_malformed_json_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        BackendSpec.from_json({"name": "b", field: value})


def test_deep_nesting_is_refused() -> None:
    target: Any = 1
    for _ in range(50):
        target = [target]
    with pytest.raises(ValueError, match="nested too deeply"):
        BackendSpec.from_json({"target": target})


def test_a_problem_is_raised_on_use() -> None:
    spec = BackendSpec(name="b", problem="backend 'b' cannot be re-created: no reason")
    for use in (spec.load, spec.callable, spec.to_source):
        with pytest.raises(CannotLoad, match="no reason"):
            use()


def test_a_module_that_cannot_be_imported_is_said() -> None:
    spec = BackendSpec(name="b", how="registered", target="b", module="no_such_module_of_ours")
    with pytest.raises(CannotLoad, match="No module named 'no_such_module_of_ours'"):
        spec.load()


def test_a_module_that_does_not_register_is_said() -> None:
    spec = BackendSpec(name="nobody", how="registered", target="nobody", module="json")
    with pytest.raises(CannotLoad, match="importing json registers no backend called 'nobody'"):
        spec.load()


def test_options_are_fresh_each_time() -> None:
    spec = BackendSpec(name="inductor", target="inductor", options={"dict": [["max_autotune", False]]})
    first = spec.options_dict()
    assert first == {"max_autotune": False}
    assert spec.options_dict() is not first


def test_names_already_used_are_imported_under_another() -> None:
    spec = BackendSpec(name="forward", how="attribute", target={"import": ["team.impl", "forward"]})
    source = spec.to_source(reserved={"forward"})
    assert source.imports == ["from team.impl import forward as impl_forward"]
    assert source.arguments == "backend=impl_forward"
    assert source.names == {"backend", "impl_forward"}
