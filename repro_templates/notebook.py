"""A script as the cells of a notebook, in Jupyter's own format (nbformat 4.5), written without Jupyter.

The code cells, from top to bottom, are the script. `code` returns them as one, which verification runs. Cells have
fixed names, so a case always gives the same notebook.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

#: How a script finds files beside it, and how a notebook does, which has no ``__file__``.
_BESIDE = ("pathlib.Path(__file__).with_name(", "pathlib.Path(")


def cells(text: Sequence[str], code: Sequence[str]) -> list[dict[str, Any]]:
    """The cells of a notebook: Markdown with ``text``, then a code cell for each non-empty part of ``code``."""
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
