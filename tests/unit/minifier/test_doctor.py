"""The line of `minify doctor` that says whether capture starts with every process."""

from importlib import metadata

import pytest

from fxminify.backends.capture import startup
from fxminify.minifier import doctor


def line(monkeypatch: pytest.MonkeyPatch, *, armed: bool, installed: bool = True) -> tuple[object, object]:
    """What it says in a process in which capture is ``armed`` or not."""
    monkeypatch.setattr(startup, "_armed", armed)
    monkeypatch.setenv(startup.DATABASE, "all.db")
    for name in ("_python", "_torch", "_sandbox", "_backends"):
        monkeypatch.setattr(doctor, name, lambda: (True, ""))
    monkeypatch.setattr(doctor, "adapters", dict)
    if not installed:
        monkeypatch.setattr(metadata, "distributions", lambda name: [])
    (row,) = [row for row in doctor.examine() if row["check"] == "start-up"]
    return row["ok"], row["found"]


def test_it_says_where_failures_land_in_a_process_that_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "FXMINIFY is set: failures of every process here are captured in all.db"
    assert line(monkeypatch, armed=True) == (True, said)


def test_it_says_how_to_arm_a_process_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "FXMINIFY=1 captures the failures of every process of this installation"
    assert line(monkeypatch, armed=False) == (True, said)


def test_it_says_where_the_variable_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    ok, said = line(monkeypatch, armed=False, installed=False)
    assert ok is None
    assert str(said).startswith("FXMINIFY=1 has no effect: fxminify.pth is not installed")
