"""Statements that do not fit into a line."""

from __future__ import annotations

import ast

import pytest

from fxminify.repro_templates.source.layout import WIDTH, PrintedCall, Statement, fitted

NAMES = ", ".join(f"argument_{i}" for i in range(20))
NESTED = [
    f"({NAMES})",
    f"[{NAMES}]",
    f"[({NAMES}), ({NAMES})]",
    "{" + ", ".join(f'"option_{i}": (False, {i})' for i in range(12)) + "}",
    f"operator(first, {NAMES}, *others, name='\u00e9\u00e9\u00e9', **more)",
    f"option=({NAMES},)",
    f"options=torch.tensor([{NAMES}], dtype=torch.int64)",
    f"(lambda *args: body(*args, argument_0), ({NAMES}), (1 + 2) * 3)",
]


@pytest.mark.parametrize("item", NESTED)
def test_an_argument_that_does_not_fit_is_broken_too(item: str) -> None:
    call = PrintedCall("torch.operator", ("x", item, "y=2" if "=" in item.partition("(")[0] else "y"))
    text = Statement(call, "result", depth=1).layout()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert ast.dump(ast.parse(text.strip())) == ast.dump(ast.parse(f"result = {call}"))


def test_what_has_no_parts_stays_in_its_line() -> None:
    long = repr("x" * 200)
    text = Statement(PrintedCall("f", (long, f"{'a' * 70}.{'b' * 70}", "1"))).layout()
    assert text.splitlines()[1].strip() == f"{long},"
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(f"f({long}, {'a' * 70}.{'b' * 70}, 1)"))


def test_a_short_call_stays_in_one_line() -> None:
    assert Statement(PrintedCall("f", ("(1, 2)", "[3]")), "x").layout() == "x = f((1, 2), [3])"


@pytest.mark.parametrize("item", [*NESTED, "x"])
def test_a_source_is_made_to_fit(item: str) -> None:
    call = PrintedCall("torch.operator", ("x", item, "y=2" if "=" in item.partition("(")[0] else "y"))
    lines = [Statement(call, "result", 1, "f32[2, 8]").layout(), f"    return ({NAMES}), result.foo('a  # b')"]
    source = "\n".join(["def forward(x):", *lines, ""])
    narrow = fitted(source, 60)
    assert max(map(len, narrow.splitlines())) <= 72  # a comment stands where it stood
    assert ast.dump(ast.parse(narrow)) == ast.dump(ast.parse(source))
    assert narrow.count("# f32[2, 8]") == 1
    assert fitted(narrow, 60) == narrow
    assert fitted("no Python at all " * 20, 60) == "no Python at all " * 20


def test_an_entry_of_a_dict_is_broken_after_its_key() -> None:
    long = ", ".join(f"'{letter * 30}'" for letter in "abc")
    source = f"x = f(y, options={{'one': 1, 'many': [{long}]}})"
    narrow = fitted(source, 60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert ast.dump(ast.parse(narrow)) == ast.dump(ast.parse(source))
    assert "        'many': [\n" in narrow
