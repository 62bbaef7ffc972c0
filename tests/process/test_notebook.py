"""A notebook in a real kernel: capture, `%minify`, and what its cells show."""

import re
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

pytestmark = pytest.mark.slow

BACKEND = """
def my_backend(gm, inputs):
    raise RuntimeError("an earlier edition of the cell")
"""
#: The name is defined once more, as by a person who edits the cell, and needs globals of two other cells.
EDITED = """
def my_backend(gm, inputs):
    for node in gm.graph.nodes:
        if "cos" in str(node.target) and calls(gm) > FEWEST:
            raise RuntimeError("cos is not supported")
    return gm.forward
"""
HELPER = """
FEWEST = 1

def calls(gm):
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)
"""
PROGRAM = """
@torch.compile(backend=my_backend)
def model(x):
    y = x.relu() + 1
    return y.cos() * 2 + x.exp()

model(torch.randn(3, 4))
"""
CELLS = ("%load_ext fxminify\nimport torch", HELPER, BACKEND, EDITED, PROGRAM, "%minify", "%minify list",
         "%minify report", "%minify run other.db", "%minify nonsense", "%unload_ext fxminify\nmodel(torch.randn(3, 4))",
         "import fxminify\nfxminify.minify('repro.db')")  # fmt: skip


@dataclass
class Ran:
    """A notebook that was run, and the directory that it was run in."""

    cells: list[nbformat.NotebookNode]
    directory: Path

    def shown(self, source: str, kind: str = "text/plain") -> str:
        """All that the cell with ``source`` shows: its streams, and of its other outputs the part of type ``kind``."""
        outputs = next(cell.outputs for cell in self.cells if cell.source == source)
        return "".join(o.get("text", "") or o.get("data", {}).get(kind, "") or o.get("evalue", "") for o in outputs)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    directory = tmp_path_factory.mktemp("notebook")
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    where = {"metadata": {"path": str(directory)}}
    NotebookClient(notebook, kernel_name="python3", timeout=300, allow_errors=True, resources=where).execute()
    return Ran(notebook.cells, directory)


def test_a_failure_in_a_cell_is_the_programs_own(ran: Ran) -> None:
    assert "repro.db" in ran.shown(CELLS[0])
    assert "cos is not supported" in ran.shown(PROGRAM)


def test_minify_shows_the_progress_and_the_script(ran: Ran) -> None:
    assert re.search(r"1 my_backend compile error: verified: 6 → 2 nodes", ran.shown("%minify"))
    markdown = ran.shown("%minify", "text/markdown")
    for text in ("```python", "def calls(gm):", "FEWEST = 1"):
        assert text in markdown
    assert "an earlier edition" not in markdown


def test_the_script_shows_the_failure_elsewhere(ran: Ran, tmp_path: Path) -> None:
    markdown = ran.shown("%minify", "text/markdown")
    script = markdown.partition("```python\n")[2].partition("\n```")[0]
    (tmp_path / "repro.py").write_text(script)
    run = subprocess.run([sys.executable, "repro.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "RuntimeError: cos is not supported" in run.stderr
    minify = [sys.executable, "-m", "fxminify", "verify", "repro.py", "--runs", "2"]
    said = subprocess.run(minify, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert said.startswith("repro.py: 2 of 2 runs show ")


def test_places_are_cells(ran: Ran) -> None:
    assert "In[5]:3 model" in ran.shown("%minify list")
    with sqlite3.connect(ran.directory / "repro.db") as db:
        (stored,) = db.execute("SELECT CAST(provenance AS TEXT) || CAST(failure AS TEXT) FROM captures").fetchone()
    assert "ipykernel" not in stored
    assert '"notebook"' in stored


def test_the_report_is_in_a_frame(ran: Ran) -> None:
    assert "srcdoc=" in ran.shown("%minify report", "text/html")


def test_errors_are_sentences(ran: Ran) -> None:
    assert "Error: other.db does not exist" in ran.shown("%minify run other.db")
    assert "No such command 'nonsense'" in ran.shown("%minify nonsense")
    failed = [o for cell in ran.cells[6:10] for o in cell.outputs if o.output_type == "error"]
    assert not failed


def test_after_unload_nothing_is_captured(ran: Ran) -> None:
    assert "cos is not supported" in ran.shown(CELLS[10])
    with sqlite3.connect(ran.directory / "repro.db") as db:
        assert db.execute("SELECT sum(occurrences) FROM captures").fetchone() == (1,)
    assert "[]" in ran.shown(CELLS[11])
