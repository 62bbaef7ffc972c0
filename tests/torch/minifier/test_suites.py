"""The suites of a hunt: their programs, and that a program is the same whenever it is prepared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import spec
from torch.utils import _pytree as pytree

from fxminify.backends.provenance.spec import BackendSpec
from fxminify.minifier.hunting import recordings, trial
from fxminify.minifier.hunting.programs import CallOutcome, PreparedProgram, Program, Selection, suite
from fxminify.minifier.hunting.trial import run_program
from fxminify.store.errors import StoreError

EXAMPLE = """
import torch

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.linear(x).relu()

def make():
    return Layer(), (torch.randn(3, 4),)
"""


def drawn(program: Program) -> list[Any]:
    """The tensors of the calls of a program."""
    return [leaf for leaf in pytree.tree_leaves(suite(program.suite).prepare(program).calls) if torch.is_tensor(leaf)]


@pytest.mark.parametrize("name", [pytest.param("ops", marks=pytest.mark.slow), "modules"])
def test_a_program_has_the_same_values_each_time_and_others_with_another_seed(name: str) -> None:
    pytest.importorskip("expecttest", reason="torch's operator database imports it")
    names = {"ops": "add", "modules": "nn.BatchNorm2d"}[name]
    programs = [Program(name, names, "float32", True, seed=seed, calls=1) for seed in (3, 4)]
    once, again, other = drawn(programs[0]), drawn(programs[0]), drawn(programs[1])
    assert once
    assert all(map(torch.equal, once, again))
    assert not all(map(torch.equal, once, other))


def test_modules_are_in_training_mode_where_gradients_are_computed() -> None:
    pytest.importorskip("expecttest", reason="torch's operator database imports it")
    wanted = Selection(("nn.BatchNorm2d", "nn.Linear"), ("float32", "int64"), dynamic=(False,))
    programs = list(suite("modules").programs(wanted))
    assert [program.text() for program in programs] == [
        f"modules nn.{name} float32 {mode} static"
        for name in ("BatchNorm2d", "Linear")
        for mode in ("forward", "gradient")
    ]
    inference, training = (suite("modules").prepare(program) for program in programs[:2])
    given = inference.calls[0][0]
    assert torch.allclose(inference.function(*given), given[1], atol=1e-3)
    result = training.function(*training.calls[0][0])
    assert result.mean().abs() < 1e-4
    assert (result.requires_grad, inference.function(*given).requires_grad) == (True, False)


@pytest.mark.slow
def test_a_program_on_another_device_has_its_inputs_there() -> None:
    pytest.importorskip("expecttest", reason="torch's operator database imports it")
    (there,) = suite("ops").programs(Selection(("add",), gradient=(False,), dynamic=(False,), device="meta"))
    assert there.text() == "ops add float32 meta forward static"
    assert {value.device.type for value in drawn(there)} == {"meta"}


def test_examples_are_the_files_of_a_folder_that_define_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layer.py").write_text(EXAMPLE)
    (tmp_path / "other.py").write_text("raise SystemExit")
    (tmp_path / "broken.py").write_text("def make(")
    monkeypatch.setenv("FXMINIFY_EXAMPLES", str(tmp_path))
    (forward, gradient) = suite("examples").programs(Selection(dynamic=(False,)))
    assert (forward.text(), gradient.text()) == ("examples layer forward static", "examples layer gradient static")
    assert [value.requires_grad for value in drawn(gradient)] == [True]
    prepared = suite("examples").prepare(forward)
    assert not prepared.function(*prepared.calls[0][0]).requires_grad
    result = run_program(gradient, BackendSpec("eager", "registered", "eager"))
    assert [(call.number, call.outcome) for call in result.calls] == [(0, CallOutcome.OK)]
    elsewhere = suite("examples").prepare(replace(forward, device="meta"))
    assert isinstance(elsewhere.function, torch.nn.Module)
    assert [value.device.type for value in (*elsewhere.calls[0][0], *elsewhere.function.parameters())] == ["meta"] * 3
    monkeypatch.setenv("FXMINIFY_EXAMPLES", str(tmp_path / "missing"))
    with pytest.raises(StoreError, match=r"the suite examples needs a folder of programs.*: set FXMINIFY_EXAMPLES"):
        list(suite("examples").programs(Selection()))


def test_examples_of_a_checkout_are_the_real_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FXMINIFY_EXAMPLES", raising=False)
    names = [program.name for program in suite("examples").programs(Selection(gradient=(False,), dynamic=(False,)))]
    assert "016_any_uint8_dtype" in names
    assert "drive" not in names


class Repeated:
    """A suite of one program: its second call has the graph of the first, and other values."""

    def programs(self, wanted: Selection) -> list[Program]:
        return [Program("repeated", "sin")]

    def prepare(self, program: Program) -> PreparedProgram:
        return PreparedProgram(torch.sin, [((torch.ones(3),), {}), ((torch.full((3,), 1000.0),), {})])


def test_a_failure_of_a_later_call_of_one_graph_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "suite", lambda name: Repeated())
    (program,) = Repeated().programs(Selection())
    result = run_program(program, spec("value_dependent"), folder=tmp_path)
    assert [(call.number, call.outcome) for call in result.calls] == [(0, CallOutcome.OK), (1, CallOutcome.FAILS)]
    assert [finding.headline for finding in result.calls[1].findings] == ["RuntimeError: overflow"]
    assert recordings.read(tmp_path, 1, 0).case is not None
