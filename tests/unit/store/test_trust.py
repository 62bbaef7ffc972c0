"""Captures made here are ours, everything else is not, and a forged or missing key never makes a file trusted."""

import hashlib
import hmac
import logging
import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from index_tasks import add, small_case

from fxminify.store.document.case import Case, TensorSpec
from fxminify.store.errors import StoreError
from fxminify.store.index import Index, rights, signing
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


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 31, b"x" * 32, bytes(32), bytes(range(33)), b"ab" * 16])
def test_a_weak_key_proves_nothing(state: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    tag = origin_tag(DOCUMENT, CAPTURE)
    (state / "fxminify" / "key").write_bytes(content)
    forged = hmac.new(content, f"case\0{DOCUMENT}\0{CAPTURE}".encode(), hashlib.sha256).hexdigest()
    with caplog.at_level(logging.WARNING, logger="fxminify"):
        assert not is_ours(DOCUMENT, CAPTURE, forged)
        assert not is_ours(DOCUMENT, CAPTURE, tag)
        assert origin_tag(DOCUMENT, CAPTURE) == ""
    assert "fxminify/key is no key of ours, so it proves nothing: remove it, and a new one is made" in caplog.text
    (state / "fxminify" / "signing-key").write_bytes(content)
    (state / "fxminify" / "signing-key").chmod(0o600)
    for use in (signing.CaptureSigner, lambda: rights.prove("token", 1)):
        with pytest.raises(StoreError, match="there is no key to sign with"):
            use()


P = 2**255 - 19
#: The y of the points of order 8: they solve d * y^4 + 2 * y^2 = 1.
Y8 = (
    2707385501144840649318225287225658788936804267575313519463743609750303402022,
    55188659117513257062467267217118295137698188065244968500265048394206261417927,
)  # fmt: skip
#: All points of small order, with the forms in which y is not reduced, and both signs of x.
SMALL = [(y, sign) for y in (0, 1, P - 1, P, P + 1, *Y8) for sign in (0, 1)]


@pytest.mark.parametrize(("y", "sign"), SMALL)
def test_a_public_key_of_small_order_is_refused(y: int, sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can make signatures of it."""
    accepted: set[str] = set()
    monkeypatch.setattr(signing, "_accepted", accepted)
    key = (y | sign << 255).to_bytes(32, "little").hex()
    with pytest.raises(StoreError, match="is a weak key, whose signatures anybody can make"):
        signing.accept([key])
    assert accepted == set()


def test_the_neutral_element_is_a_key_that_signs_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the refusal is needed: the library takes it."""
    neutral = (1).to_bytes(32, "little")
    monkeypatch.setattr(signing, "_accepted", {neutral.hex()})
    forged = f"ed25519:{neutral.hex()}:{(neutral + bytes(32)).hex()}"
    assert is_ours(DOCUMENT, CAPTURE, forged)


def test_real_public_keys_are_accepted(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    accepted: set[str] = set()
    monkeypatch.setattr(signing, "_accepted", accepted)
    for number in range(20):
        monkeypatch.setenv("XDG_STATE_HOME", str(state / str(number)))
        signing.accept([signing.CaptureSigner().public])
    assert len(accepted) == 20
