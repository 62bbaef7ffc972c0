"""Captures made here are ours, everything else is not, and a forged or missing key never makes a file trusted."""

from dataclasses import replace
from pathlib import Path

import pytest

from fxminify.store.document.case import Case, Graph, Node
from fxminify.store.index.trust import is_ours, origin_tag

CASE = Case(
    graph=Graph(
        (
            Node("x", "placeholder", "L_x_"),
            Node("relu", "call_function", {"fn": "torch.relu"}, ({"ref": "x"},)),
            Node("output", "output", "output", ({"tuple": [{"ref": "relu"}]},)),
        )
    ),
    inputs=(1,),
    backend={"name": "inductor"},
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_own_capture_is_ours() -> None:
    assert is_ours(CASE, origin_tag(CASE))


def test_another_backend_is_not_covered_by_the_tag() -> None:
    tag = origin_tag(CASE)
    assert not is_ours(replace(CASE, backend={"name": "evil", "source": {"text": "import os"}}), tag)
    assert not is_ours(replace(CASE, imports=({"module": "evil"},)), tag)


def test_a_file_from_another_user_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = origin_tag(CASE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not is_ours(CASE, tag)
    origin_tag(CASE)
    assert not is_ours(CASE, tag)


@pytest.mark.parametrize("tag", ["", "0" * 64, "é"])
def test_a_made_up_tag_is_not_ours(tag: str) -> None:
    origin_tag(CASE)
    assert not is_ours(CASE, tag)


def test_without_a_place_for_the_key_nothing_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    assert origin_tag(CASE) == ""
    assert not is_ours(CASE, "")


def test_the_key_is_private(state: Path) -> None:
    origin_tag(CASE)
    assert (state / "fxminify" / "key").stat().st_mode & 0o777 == 0o600
