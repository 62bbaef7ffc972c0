"""Blank lines between top-level statements, and nothing else."""

from __future__ import annotations

import ast

import pytest

from fxminify.repro_templates.source.layout import spaced


def test_gaps_are_those_of_a_formatter() -> None:
    head = '"""Doc."""\nimport sys\nimport torch\nx = 1\ny = 2\n'
    rest = "# About f.\n@g\ndef f():\n    return 1\nz = f()\n\n"
    assert spaced(f"{head}{rest}w = 3\n") == (
        '"""Doc."""\n\nimport sys\n\nimport torch\n\nx = 1\ny = 2\n\n\n# About f.\n@g\ndef f():\n    return 1\n\n\n'
        "z = f()\n\nw = 3\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        "",
        "# only a comment\n",
        "x = 1; y = 2\ndef f(): pass\n",
        'TEXT = """\ndef inner():\n\n\n\n    pass\nimport sys\n"""\ndef f():\n    return """\n\n\n\nx"""\n',
        'def f(): return "a\x0cb"\nx = 1  # last',
    ],
)
def test_what_stands_inside_of_a_statement_stays(source: str) -> None:
    assert ast.dump(ast.parse(spaced(source))) == ast.dump(ast.parse(source))
    assert spaced(spaced(source)) == spaced(source)
    assert spaced(source).endswith("\n") == source.endswith("\n")
