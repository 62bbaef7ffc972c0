"""Write `docs/gallery.md`: real failures, and the script that fxminify makes of each.

``make recordings`` runs ``minify capture`` and ``minify run`` on all of them, which takes minutes; with names the
script does so with these alone, and keeps the rest of the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PAGE = DOCS / "gallery.md"
FAILURES = ROOT / "tests" / "failures"
HEAD = """# Gallery

Real failures, none of them planted, and what fxminify makes of each. The scripts stand here as `minify repro` prints
them. The tables have the lines of the failing program and the nodes of the captured and of the minimal graph, without
inputs and output. Below three of the scripts stands the issue as it would be filed, from `minify explain` and
`minify repro --format issue`. Written by `make recordings`, from runs of `minify capture` and `minify run` with one
thread.
"""


@dataclass(frozen=True)
class Entry:
    """A failing program and what there is to say of it."""

    name: str
    title: str
    text: str
    #: What the minimal graph must contain.
    culprit: str
    #: Options of ``minify capture``.
    options: tuple[str, ...] = ()
    #: Whether the issue stands below the script.
    issue: bool = False

    @property
    def program(self) -> Path:
        """The file that fails."""
        return next(path for folder in (FAILURES, DOCS / "demo") if (path := folder / f"{self.name}.py").exists())

    @property
    def command(self) -> list[str]:
        """What ``minify capture`` gets: the program itself, or the driver of ``tests/failures`` with its name."""
        if self.program.parent == FAILURES:
            return [*self.options, str(FAILURES / "drive.py"), self.name]
        return [*self.options, str(self.program)]


CHECK = ("--check", "first:2")
ENTRIES = (
    Entry(
        "mixtral",
        "A Hugging Face model",
        "A Mixtral with random weights. The export to ONNX knows no translation of an operator that"
        " `transformers` registers, and names it only in the cause of its error.",
        "torch.ops.transformers.grouped_mm_fallback",
    ),
    Entry(
        "151_cond_acosh",
        "Inductor computes other numbers inside a branch",
        "The operator `cond` is not needed: `acosh` of large numbers fails without it. The script makes such numbers.",
        "acosh",
        CHECK,
    ),
    Entry(
        "216_audio_avg_pool_ceil_grad",
        "Inductor computes a wrong gradient",
        "The forward pass is right. The script compares gradients, as the program never did.",
        "avg_pool",
        CHECK,
        issue=True,
    ),
    Entry(
        "215_mae_randperm_take",
        "Inductor does not compile a masked encoder",
        "A pattern of Inductor matches `randperm` and `take` together, so neither can go (pytorch/pytorch#188223).",
        "randperm",
        issue=True,
    ),
    Entry(
        "037_ort_floor_divide_intmin",
        "ONNX Runtime dies of a signal",
        "The smallest integer divided by -1: the process dies, so that only its parent can tell. The value that matters"
        " is in the script.",
        " // ",
    ),
    Entry(
        "008_fractional_maxpool_neg_kernel",
        "A kernel of Inductor reads past its input",
        "The kernel notices it and raises. With several threads the same program dies of a signal.",
        "fractional_max_pool2d",
        issue=True,
    ),
    Entry(
        "026_ts_any_graph",
        "TorchScript refuses every graph",
        "The backend `ts` of PyTorch fails whatever the graph is. One node has to stay; fxminify takes a plain one.",
        "torch",
    ),
    Entry(
        "205_unet_nearest_scale",
        "A decomposition picks other neighbours",
        "Upsampling by 1.3 in a U-Net reads another neighbour once it is decomposed.",
        "interpolate",
        CHECK,
    ),
)  # fmt: skip


def minify(folder: Path, *args: str) -> str:
    """What ``minify`` prints in ``folder``; what it says on the way goes to standard error."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(FAILURES),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    command = [sys.executable, "-m", "fxminify", *args]
    return subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout


def section(entry: Entry, index: Path | None = None) -> str:
    """What the page says of ``entry``, from a run of it, or from the ``index`` of one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if index is not None:
            shutil.copy(index, folder / "repro.db")
        else:
            minify(folder, "capture", *entry.command)
            minify(folder, "run", "repro.db", "1", *([] if entry.issue else ["--no-explain"]))
        (row,) = (row for row in json.loads(minify(folder, "list", "--json")) if row["id"] == 1)
        script = minify(folder, "repro", "repro.db", "1")
        issue = ""
        if entry.issue:
            minify(folder, "explain", "repro.db", "1")
            issue = minify(folder, "repro", "repro.db", "1", "--format", "issue")
    if row["state"] != "verified":
        raise SystemExit(f"{entry.name} is {row['state']}: {row['reason']}")
    if entry.culprit not in script or any(place in script + issue for place in (str(ROOT), name)):
        raise SystemExit(f"the script of {entry.name} is not one to show:\n{script}\n{issue}")
    filed = f"\nThe issue as it would be filed:\n\n````markdown\n{issue}````\n" if issue else ""
    return f"## {entry.title}\n\n{entry.text}\n\n{table(entry, row)}\n\n```python\n{script}```\n{filed}"


def table(entry: Entry, row: dict[str, Any]) -> str:
    """The numbers of a run."""
    lines = len(entry.program.read_text().splitlines())
    link = f"[{entry.name}.py]({os.path.relpath(entry.program, DOCS)})"
    cells = {
        "program": f"{link}, {lines} lines",
        "backend": f"`{row['backend']}`",
        "failure": row["kind"].replace("_", " "),
        "nodes": f"{row['nodes_before']} → {row['nodes_after']}",
        "queries": str(row["queries"]),
        "verified": f"{row['verified']} of {row['runs']} runs",
    }
    return "\n".join([f"| {' | '.join(cells)} |", "|" + "---|" * len(cells), f"| {' | '.join(cells.values())} |"])


def sections(page: str) -> dict[str, str]:
    """The sections of a page by their titles."""
    titles = "|".join(re.escape(entry.title) for entry in ENTRIES)  # an issue has headings of its own
    starts = [match.start() for match in re.finditer(rf"^## (?:{titles})$", page, re.MULTILINE)]
    parts = [page[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return {part.partition("\n")[0].removeprefix("## "): part for part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/gallery.md.")
    parser.add_argument("names", nargs="*", help="entries to run anew; all, where none is named")
    parser.add_argument("--index", type=Path, help="the index of a run of the one entry that is named: nothing is run")
    asked = parser.parse_args()
    for entry in ENTRIES:
        if not asked.names or entry.name in asked.names:
            new = section(entry, asked.index)
            made = sections(PAGE.read_text() if PAGE.exists() else "") | {entry.title: new}
            PAGE.write_text(
                "\n\n".join([HEAD.rstrip(), *(made[e.title].rstrip() for e in ENTRIES if e.title in made)]) + "\n"
            )
            print(entry.title)


if __name__ == "__main__":
    main()
