"""Captures made here are ours, everything else is not, and a forged or missing key never makes a file trusted."""

import logging
import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from index_tasks import add, small_case

from fxminify.store.document.case import Case, TensorSpec
from fxminify.store.index import Index
from fxminify.store.index.documents import pack
from fxminify.store.index.trust import is_ours, origin_tag

DOCUMENT, CAPTURE = "d" * 64, "c" * 64


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_own_capture_is_ours(tmp_path: Path) -> None:
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        add(index, *small_case(1), "no a", ours=True)
        add(index, *small_case(2), "no b")
        assert [index.stored(id).ours for id in (1, 2)] == [True, False]
        assert add(index, *small_case(2), "no b", ours=True) == 2
        assert not index.stored(2).ours  # the first case is kept, and that was of somebody else


def test_another_document_or_capture_is_not_covered_by_the_tag() -> None:
    tag = origin_tag(DOCUMENT, CAPTURE)
    assert is_ours(DOCUMENT, CAPTURE, tag)
    assert not is_ours("e" * 64, CAPTURE, tag)
    assert not is_ours(DOCUMENT, "e" * 64, tag)


#: Another value for each field of a case.
OTHER: dict[str, Any] = {
    "inputs": (5,), "tensors": (TensorSpec("float64", (9,), (1,), init={"fn": "randn"}),),
    "context": {"config": {"torch._dynamo.config": {"verbose": True}}}, "tolerance": {"float32": 1.0}, "strict": True,
    "backend": {"name": "evil"}, "imports": ({"module": "evil"},), "compare": True, "backward": True, "calls": 9,
    "torch": "9", "earlier": ((1,),),
}  # fmt: skip


@pytest.mark.parametrize("field", [field.name for field in fields(Case)])
def test_the_tag_is_of_all_that_influences_a_run(field: str) -> None:
    case, _ = small_case()
    other = {"graph": replace(case.graph, nodes=case.graph.nodes[:-1])} | OTHER
    tag = origin_tag(pack(case)[0], CAPTURE)
    assert not is_ours(pack(replace(case, **{field: other[field]}))[0], CAPTURE, tag)


def test_a_file_from_another_user_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = origin_tag(DOCUMENT, CAPTURE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not is_ours(DOCUMENT, CAPTURE, tag)
    origin_tag(DOCUMENT, CAPTURE)
    assert not is_ours(DOCUMENT, CAPTURE, tag)


@pytest.mark.parametrize("tag", ["", "0" * 64, "é"])
def test_a_made_up_tag_is_not_ours(tag: str) -> None:
    origin_tag(DOCUMENT, CAPTURE)
    assert not is_ours(DOCUMENT, CAPTURE, tag)


def test_without_a_place_for_the_key_nothing_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    assert origin_tag(DOCUMENT, CAPTURE) == ""
    assert not is_ours(DOCUMENT, CAPTURE, "")


def test_the_key_is_private(state: Path) -> None:
    origin_tag(DOCUMENT, CAPTURE)
    assert (state / "fxminify" / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        lambda key: key.chmod(0o640),
        lambda key: key.chmod(0o602),
        pytest.param(
            lambda key: os.chown(key, 12345, 12345), marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
        ),
    ],
)
def test_a_key_that_others_may_know_proves_nothing(
    state: Path, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    tag = origin_tag(DOCUMENT, CAPTURE)
    change(state / "fxminify" / "key")
    with caplog.at_level(logging.WARNING, logger="fxminify"):
        assert not is_ours(DOCUMENT, CAPTURE, tag)
    assert origin_tag(DOCUMENT, CAPTURE) == ""
    assert "fxminify/key is not private to you" in caplog.text
