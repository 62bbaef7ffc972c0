"""Documents that mean harm: each is refused before anything is built, and nothing in it runs."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hostile_documents import (
    OUT,
    PLANTED,
    REFUSED,
    Json,
    X,
    attribute,
    calling,
    document,
    leaf,
    subgraphs,
    tensor,
    value,
)
from work import Lines

from fxminify.store.document.case import Case, to_json
from fxminify.store.document.decode import InvalidDocument, Limits, check_storage, parse, validate


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A function that hostile text calls; nothing may call it."""
    calls: list[int] = []
    monkeypatch.setattr(builtins, PLANTED, lambda *a: calls.append(1), raising=False)
    yield calls
    assert calls == []


@pytest.mark.parametrize("doc", REFUSED.values(), ids=REFUSED.keys())
def test_a_hostile_document_is_refused_with_little_work(doc: Json) -> None:
    with Lines() as work, pytest.raises(InvalidDocument) as refused:
        validate(doc)
    assert work.count < 1_000_000
    message = str(refused.value)
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize("doc", [None, 3, "x", [], [{}], {}, {"format": 1}, {1: 2}], ids=repr)
def test_what_is_no_document_is_refused(doc: Any) -> None:
    with pytest.raises(InvalidDocument):
        validate(doc)


def test_the_plain_document_of_these_tests_is_accepted() -> None:
    assert isinstance(validate(document()), Case)
    assert isinstance(validate(calling()), Case)
    assert isinstance(validate(leaf()), Case)
    assert isinstance(validate(attribute("a.b", {"tensor": 0, "kind": "buffer"})), Case)


def test_too_many_nodes_are_refused_before_any_is_read() -> None:
    nodes = [
        {"name": f"a{i}", "op": "call_function", "target": {"fn": "torch.sin"}, "args": [{"ref": "x"}]}
        for i in range(1 << 16)
    ]
    with Lines() as work, pytest.raises(InvalidDocument, match="at most 50000"):
        validate(document() | {"graph": {"nodes": [X, *nodes, OUT]}})
    assert work.count < 10_000


def test_limits_count_across_sub_graphs() -> None:
    doc = subgraphs(10)
    assert isinstance(validate(doc), Case)
    with pytest.raises(InvalidDocument, match="more than 12 nodes"):
        validate(doc, Limits(nodes=12))
    with pytest.raises(InvalidDocument, match="more than 5 values"):
        validate(value(list(range(10))), Limits(values=5))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}', '{"a": 1, "a": 2}', "[1]", "3", "", "{", "nul", "{}{}",
        '{"a": ' + "9" * 5000 + "}", "[" * 100_000, '{"a":' * 100_000, b"\xff\xfe", b'{"a": "\xff"}', '{"a": "\x00"}',
    ],
)  # fmt: skip
def test_text_that_json_lets_through_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidDocument):
        parse(text)


def test_overflowing_numbers_are_refused() -> None:
    with pytest.raises(InvalidDocument, match="not finite"):
        validate(parse(json.dumps(document()).replace('"tensors"', '"context": {"a": 1e400}, "tensors"')))


def test_long_text_is_refused() -> None:
    with pytest.raises(InvalidDocument, match="longer than 10"):
        parse('{"a": "0123456789"}', Limits(characters=10))


def test_a_tensor_must_stay_in_its_storage() -> None:
    case = validate(tensor(shape=[2, 3], stride=[3, 1], offset=2))
    check_storage(case.tensors[0], 32)
    with pytest.raises(InvalidDocument, match="reaches byte 32 of a storage of 31"):
        check_storage(case.tensors[0], 31)


def test_what_is_accepted_reads_back_the_same() -> None:
    case = validate(calling(kwargs={"out": None}, meta={"dtype": "float32", "shape": [2, "s0"]}))
    assert validate(parse(json.dumps(to_json(case)))) == case


@pytest.mark.process
def test_validating_never_loads_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from fxminify.store.document.decode import parse, validate; "
        "validate(parse(sys.argv[1])); print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code, json.dumps(leaf())], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"
