"""What a capture says about getting its surroundings back elsewhere: the backend, custom operators, device plug-ins."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fxminify
from fxminify.backends.capture.graph_snapshot import device_imports
from fxminify.store.document.case import Case
from fxminify.store.index import CaptureInfo, Index, State


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An importable module of a team: a registered backend, a plain function, and a custom operator."""
    (tmp_path / "team_backend.py").write_text(
        "import torch\n"
        "from torch._dynamo import register_backend\n"
        "@register_backend(name='team')\n"
        "def compile_team(gm, inputs):\n    raise ValueError('cannot lower')\n"
        "class Compiler:\n"
        "    def compile(self, gm, inputs):\n        raise ValueError('cannot lower')\n"
        "compiler = Compiler()\n"
        "def plain(gm, inputs):\n    raise ValueError('cannot lower')\n"
        "@torch.library.custom_op('team::op', mutates_args=())\n"
        "def op(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n"
        "@op.register_fake\n"
        "def _(x):\n    return torch.empty_like(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    if "team_backend" not in sys.modules:  # operators are registered once in a process
        __import__("team_backend")
    return sys.modules["team_backend"]


def only(db: str) -> tuple[CaptureInfo, Case]:
    with Index.open(db) as index:
        [row] = index.captures.find()
        return row, index.captures.case(row.id)


def fail(db: str, function: Callable[..., Any], backend: str | Callable[..., Any]) -> tuple[CaptureInfo, Case]:
    with fxminify.capturing(db), pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(function, backend=backend)(torch.ones(3))
    return only(db)


def test_the_module_that_registers_a_backend(db: str, package: types.ModuleType) -> None:
    """Row 1: PyTorch's script does not import it."""
    row, case = fail(db, lambda x: x + 1, "team")
    assert (row.backend, row.state) == ("team", State.PENDING)
    assert case.backend["module"] == "team_backend"


def test_a_method_is_named_with_its_class(db: str, package: types.ModuleType) -> None:
    row, case = fail(db, lambda x: x + 1, package.compiler.compile)
    assert row.backend == "Compiler.compile"
    assert case.backend["target"] == {"get": [{"import": ["team_backend", "compiler"]}, "compile"]}


def test_an_importable_function(db: str, package: types.ModuleType) -> None:
    """Row 5."""
    row, case = fail(db, lambda x: x + 1, package.plain)
    assert (row.backend, row.state) == ("plain", State.PENDING)
    assert "team_backend" in str(case.backend["target"])


def test_the_module_that_registers_an_operator(db: str, package: types.ModuleType) -> None:
    """Row 9."""
    row, case = fail(db, lambda x: torch.ops.team.op(x), package.plain)
    assert row.state is State.PENDING
    assert [i.get("module") for i in case.imports] == ["team_backend"]


@pytest.mark.process
def test_an_operator_nobody_can_find_again_is_said_at_capture_time(db: str, package: types.ModuleType) -> None:
    registration = (
        "import torch\n"
        "library = torch.library.Library('nowhere_kept', 'DEF')\n"
        "library.define('op(Tensor x) -> Tensor')\n"
        "library.impl('op', lambda x: x + 1, 'CompositeExplicitAutograd')\n"
        "library.impl('op', lambda x: torch.empty_like(x), 'Meta')\n"
    )
    namespace: dict[str, Any] = {}
    exec(compile(registration, "<nowhere>", "exec"), namespace)  # noqa: S102  it must have no file
    assert namespace["library"]
    with fxminify.capturing(db), pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(lambda x: torch.ops.nowhere_kept.op(x), backend=package.plain)(torch.ones(3))
    with Index.open(db) as index:
        [row] = index.captures.find()
    assert row.state is State.UNSUPPORTED
    assert row.reason.startswith("operator nowhere_kept::op")


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "team"])
def test_one_way_to_capture_for_every_backend(db: str, package: types.ModuleType, backend: str) -> None:
    """Row 4: PyTorch's REPRO_AFTER=aot covers Inductor only."""

    def internal_overlap(x: torch.Tensor) -> torch.Tensor:
        return (x + x).unfold(0, 4, 2).abs_()

    with fxminify.capturing(db), pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(internal_overlap, backend=backend)(torch.linspace(-3, 3, 8))
    row, _ = only(db)
    assert (row.backend, row.kind, row.phase) == (backend, "compile_error", "compile")


def test_the_package_of_a_device_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 8: out-of-tree devices are known after an import."""
    plugin = types.ModuleType("torch_npu.npu")
    monkeypatch.setattr(torch, "get_device_module", {"npu": plugin}.__getitem__)
    assert device_imports(["cpu", "npu", "meta"]) == [{"module": "torch_npu"}]


def test_the_environment_variables_that_a_backend_reads(
    db: str, package: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "team_reader.py").write_text(
        "import os\n"
        "TARGET = os.environ['TEAM_TARGET']\n"
        "LEVEL = os.getenv('TEAM_LEVEL', '1')\n"
        "FAST = 'TEAM_FAST' in os.environ\n"
        "HOME = os.environ['HOME'], os.environ.get('TEAM_UNSET'), os.environ['PYTEST_CURRENT_TEST']\n"
        "def reader(gm, inputs):\n    raise ValueError('cannot lower')\n"
    )
    for name in ("TEAM_TARGET", "TEAM_LEVEL", "TEAM_FAST", "TEAM_OTHER"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("TORCHINDUCTOR_COORDINATE_DESCENT_TUNING", "1")
    fxminify.install(db)
    with pytest.raises(Exception, match="cannot lower"):
        torch.compile(torch.sin, backend=__import__("team_reader").reader)(torch.ones(2))
    _, case = only(db)
    assert case.backend["variables"] == ["TEAM_FAST", "TEAM_LEVEL", "TEAM_TARGET"]
    assert "secret" not in str(case.backend)
