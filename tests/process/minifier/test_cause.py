"""`minify explain`: a backend whose parts can be turned off, and Inductor."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faulty_backends  # noqa: F401  registers the backends
import pytest
import torch

import fxminify
from fxminify.backends.adapters import BackendAdapter
from fxminify.backends.switches import Switch
from fxminify.minifier.reporting import find_cause
from fxminify.minifier.reporting.cause import CANNOT, CURES, OTHER, STAYS, Application, Cause, found
from fxminify.repro_templates.processes import Script
from fxminify.store.errors import StoreError
from fxminify.store.index import Index

FUSE, TILE, FAST = (Switch(name, options={name: False}) for name in ("fuse", "tile", "fast"))
GONE = Switch("gone", {"torch._inductor.config": {"no_such_setting": 1}})


@pytest.fixture
def explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cause]:
    """A function that captures a failure of the backend ``parts`` and searches with these switches."""

    def explain(*switches: Switch, needs: str, **options: Any) -> Cause:
        db = tmp_path / "repro.db"
        adapter = BackendAdapter()
        adapter.switches = switches
        monkeypatch.setattr(find_cause, "adapter_of", lambda name: adapter)
        if not db.exists():
            torch._dynamo.reset()
            fxminify.install(db, check=False)
            try:
                with pytest.raises(Exception, match="cannot lower relu"):
                    torch.compile(lambda x: torch.relu(x) + 1, backend="parts", options={"needs": needs})(torch.ones(3))
            finally:
                fxminify.uninstall()
        return find_cause.explain(str(db), 1, **options)

    return explain


def results(cause: Cause) -> dict[str, str]:
    return {row.part: row.result for row in cause.rows}


def test_the_part_whose_switch_makes_the_failure_go_is_named(explained: Callable[..., Cause], tmp_path: Path) -> None:
    cause = explained(FUSE, TILE, FAST, GONE, needs="tile")
    assert results(cause) == {"fuse": STAYS, "tile": CURES, "fast": OTHER, "gone": CANNOT}
    assert next(row.message for row in cause.rows if row.part == "gone").endswith("has no setting no_such_setting")
    assert cause.fails_in() == "tile"
    (way,) = cause.ways
    assert (way.lines, way.runs, way.captured) == (tuple(TILE.lines), 2, "passes")
    assert cause.sentences() == [
        "Fails in: tile.",
        "Works around: torch.compile(..., options={'tile': False}) (the minimal case passed 2 of 2 times, "
        "the captured graph passes).",
        "Compiled in another way it fails with dynamic=True and with dynamic=False.",
    ]
    assert [(twin.change, twin.result) for twin in cause.twins] == [("dynamic=True", STAYS), ("dynamic=False", STAYS)]
    with Index.open(str(tmp_path / "repro.db"), readonly=True) as index:
        assert found(index, 1) == cause


@pytest.mark.slow
def test_two_parts_that_fail_only_together_are_named_together(explained: Callable[..., Cause]) -> None:
    cause = explained(FUSE, TILE, Switch("unused", options={"unused": False}), needs="fuse or tile")
    assert cause.fails_in() == "fuse and tile"
    assert [way.lines for way in cause.ways] == [("torch.compile(..., options={'fuse': False, 'tile': False})",)]


@pytest.mark.slow
def test_where_no_switch_helps_it_says_so(explained: Callable[..., Cause]) -> None:
    cause = explained(FUSE, needs="always")
    assert (results(cause), cause.ways) == ({"fuse": STAYS}, ())
    assert cause.sentences() == [
        "The failure stays with each of 1 switch of the backend.",
        "Compiled in another way it fails with dynamic=True and with dynamic=False.",
    ]


@pytest.mark.slow
def test_a_search_that_ran_out_of_queries_goes_on(explained: Callable[..., Cause]) -> None:
    first = explained(FUSE, TILE, needs="tile", budget=2)
    assert (results(first), first.stopped) == ({"fuse": STAYS}, "2 queries were asked")
    again = explained(FUSE, TILE, needs="tile")
    assert (results(again), again.stopped) == ({"fuse": STAYS, "tile": CURES}, "")
    third = explained(FUSE, TILE, needs="tile", budget=2)
    assert (results(third), third.stopped, third.ways) == (results(again), "", again.ways)
    assert again.queries < 12


def test_a_backend_without_switches_is_refused_with_the_next_command(explained: Callable[..., Cause]) -> None:
    with pytest.raises(StoreError, match=r"has no switches.*minify ablate"):
        explained(needs="tile")


def test_a_stored_cause_chooses_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = ("PYTHONPATH=/evil", "no variable")
    cause = Cause("key", applications=(
        Application("lowerings", 3, 9, "acosh", "lowering", planted, planted),
        Application("elsewhere", 3, 9, "acosh", "lowering", planted, planted),
    ))  # fmt: skip
    adapter = BackendAdapter()
    adapter.subsystems = {"lowerings": "lowering"}
    monkeypatch.setattr(adapter, "limit_variables", lambda subsystem, most: {"LIMIT": f"{subsystem} {most}"})
    given: list[Any] = []

    def run(script: Script, *, plain: bool) -> SimpleNamespace:
        given.append(script.variables)
        return SimpleNamespace(code=len(given) % 2)

    nothing: Any = None
    search = find_cause._CauseSearch(
        nothing, nothing, nothing, nothing, adapter, cause, 1.0, 1, lambda cause: None, nothing
    )
    processes: Any = SimpleNamespace(run=run)
    search.check(Script("", 1.0), processes)
    assert given == [{"LIMIT": "lowerings 3"}, {"LIMIT": "lowerings 2"}]
    (checked,) = search.cause.applications
    assert (checked.checked, checked.fails_with, checked.passes_with) == (
        True, ("LIMIT=lowerings 3",), ("LIMIT=lowerings 2",),
    )  # fmt: skip


@pytest.mark.slow
def test_inductors_vector_code_is_named_and_the_script_shows_the_application(tmp_path: Path) -> None:
    program = "import torch\ntorch.compile(lambda x: torch.acosh(x * 2) + 1)(torch.tensor([1e30] * 16))\n"
    (tmp_path / "program.py").write_text(program)

    def minify(*args: str) -> str:
        command = [sys.executable, "-m", "fxminify", *args]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    command = [sys.executable, "-m", "fxminify", "capture", "--check", "program.py"]
    subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)
    minify("run", "repro.db", "1")
    report = json.loads(minify("explain", "repro.db", "1", "--json"))
    assert report["layer"]["part"] == "vectorised C++ code; lowering of acosh (application 1 of 1)"
    assert report["layer"]["layer"] == "the backend inductor"
    assert report["ways_around"][0]["lines"][0].startswith("torch._inductor.config.cpp.")
    assert [a["checked"] for a in report["cause"]["applications"]] == [True]
    (judged,) = report["cause"]["judgements"]
    assert (judged["where"], judged["assert_close"], judged["same"]) == ("output 0", False, False)
    assert judged["units"] == "inf"
    assert 0 < float(judged["eager_units"]) < 1
    twins = {twin["change"]: twin["result"] for twin in report["cause"]["twins"]}
    assert twins.pop('mode="lite"') == "passes"
    assert twins == dict.fromkeys(
        ["dynamic=True", "dynamic=False", 'mode="reduce-overhead"', 'mode="max-autotune-no-cudagraphs"'],
        "same failure",
    )
    (result,) = report["divergence"]["results"]
    assert (result["dtype"], result["actual"], result["expected"]) == ("float32", "inf", "70.4638")
    assert "Fails in: vectorised C++ code" in minify("show", "repro.db", "1")
    issue = minify("repro", "repro.db", "1", "--format", "issue").replace("\\", "")
    assert "Fails in: vectorised C++ code" in issue
    assert "\nkernel cpp_fused_acosh" in issue
    assert ".acosh();\n" in issue
    assert "#include" not in issue
