"""The cells of a notebook as one program."""

import pytest

from fxminify.backends.provenance import cells
from fxminify.store.live import ipython


def amounts_to(monkeypatch: pytest.MonkeyPatch, *run: str) -> str:
    monkeypatch.setattr(ipython, "cells", lambda: ("", *run))
    return "\n".join(line for line in cells.program().lines if line)


def test_cells_are_in_the_order_of_their_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert amounts_to(monkeypatch, "import math", "x = 1\n", "y = x") == "import math\nx = 1\ny = x"


def test_a_cell_that_was_run_again_counts_where_it_was_run_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert amounts_to(monkeypatch, "x = 1", "y = 2", "x = 1\n") == "y = 2\nx = 1"


def test_what_a_later_cell_makes_anew_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    first = "import os\n\n@cached\ndef f():\n    return 1\n\nLIMIT = 2"
    assert amounts_to(monkeypatch, first, "def f():\n    return 2", "LIMIT: int = 3") == (
        "import os\ndef f():\n    return 2\nLIMIT: int = 3"
    )


def test_what_a_later_cell_changes_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ("x = [1]", "x = x + [2]", "x.append(3)", "x[0] = 5", "a = 1; b = 2", "a = 3")
    assert amounts_to(monkeypatch, *run) == "\n".join(run)


def test_two_definitions_in_one_cell_both_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = "def f():\n    return 1\ndef f():\n    return 2"
    assert amounts_to(monkeypatch, cell) == cell


def test_a_cell_that_is_no_python_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert amounts_to(monkeypatch, "x = ", "y = 1") == "y = 1"


def test_a_line_of_a_cell_is_found_in_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    amounts_to(monkeypatch, "import os\n\n\n", "def f():\n    pass\n\ndef g():\n    pass\n")
    found = cells.program()
    assert found.lines[found.line("def f():\n    pass\n\ndef g():\n    pass\n\n", 4) - 1] == "def g():"
    assert found.line("def h(): pass", 1) == 0


@pytest.mark.parametrize(
    ("file", "is_one"),
    [
        ("/tmp/ipykernel_4711/1521744714.py", True),
        ("<ipython-input-3-2b4c5d6e7f80>", True),
        ("/home/somebody/ipykernel_launcher.py", False),
        ("<string>", False),
        ("train.py", False),
    ],
)
def test_the_file_of_a_cell(file: str, is_one: bool) -> None:
    assert ipython.is_cell(file) is is_one
    assert ipython.cell(file) == ("In[?]" if is_one else "")
