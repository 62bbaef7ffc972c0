"""A script as the cells of a notebook, in Jupyter's own format (nbformat 4.5), written without Jupyter.

Run from top to bottom the code cells are the script: `code` gives them back as one, and that is what verification runs.
Cells have fixed names, so that one case gives one notebook.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

#: How a script finds what lies beside it, and how a notebook does, which is no file to Python.
_BESIDE = ("pathlib.Path(__file__).with_name(", "pathlib.Path(")


def cells(text: Sequence[str], code: Sequence[str]) -> list[dict[str, Any]]:
    """One Markdown cell of ``text``, then the non-empty parts of ``code``."""
    out = [_cell("markdown", "\n".join(text), 0)]
    out += [_cell("code", part.strip("\n"), i) for i, part in enumerate(filter(str.strip, code), 1)]
    return out


def code(notebook: str) -> str:
    """The code cells of a notebook of ours, in order, as one script."""
    parts = ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    return "\n\n".join(parts) + "\n"


def _cell(kind: str, text: str, number: int) -> dict[str, Any]:
    text = text.replace(*_BESIDE) if kind == "code" else text
    made: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    made["source"] = text.splitlines(keepends=True)
    return {**made, "execution_count": None, "outputs": []} if kind == "code" else made
