"""Write `docs/terminal.md`: what a terminal of 80 columns shows of a failure, from the program to its script.

Each command runs on a terminal of its own; the page has what stands there at the end. ``make recordings`` runs it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from dataclasses import dataclass
from pathlib import Path

from fxminify.store.text import count

DOCS = Path(__file__).parent
PAGE = DOCS / "terminal.md"
PROGRAM = DOCS / "demo" / "denoise.py"
COLUMNS, ROWS = 80, 50
#: A line of a traceback that stands for those in PyTorch.
FOLDED = re.compile(r'(?:^ +File "[^"\n]*/site-packages/torch/[^"\n]*", line .*\n(?: {4,}.*\n)*)+', re.MULTILINE)
#: What is printed only where a run takes long.
SLOW = re.compile(r"^.*: the script is verified; what is left is to explain it: .*\n", re.MULTILINE)
HEAD = """# From a failing program to a script

A recording, made by `make recordings`: each command ran on a terminal of 80 columns, and this is what stood there
afterwards. Nothing is left out but the frames of PyTorch in tracebacks. `minify catch denoise.py` does all at once.
"""


@dataclass(frozen=True)
class Step:
    """A command, what there is to say of it, and its exit code."""

    text: str
    command: str
    code: int = 0


STEPS = (
    Step(
        "A model that Inductor does not compile. The error names no operator.",
        "cat denoise.py",
    ),
    Step("The program runs unchanged. The last line says what was captured.", "minify capture denoise.py", 1),
    Step("While it works, `minify run` shows its progress in a line that goes when it is done.", "minify run repro.db"),
    Step("A row for each bug.", "minify list repro.db"),
    Step("`minify show` has the failure, the graph that is left, and what matters.", "minify show repro.db 1"),
    Step("The script.", "minify repro repro.db 1 -o repro.py"),
    Step("It stands alone.", "cat repro.py"),
    Step("It fails as the program does.", "python repro.py", 1),
)


def environment(folder: Path) -> dict[str, str]:
    """That of a user with a home and a terminal of their own, who has this installation on ``PATH``."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COLUMNS", "LINES", "NO_COLOR")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"PATH": path, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / ".state")}
    return {**kept, **own}


def at_a_terminal(command: str, folder: Path, typed: str = "") -> tuple[int, str]:
    """The exit code of a shell's ``command`` whose standard streams are a terminal, and all that it wrote there.

    ``typed`` is what a person has typed before.
    """
    own, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment(folder), stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(own, typed.encode())
    written = b""
    while True:
        try:
            part = os.read(own, 1 << 16)
        except OSError as error:  # Linux says so once nobody has the other side open
            if error.errno != errno.EIO:
                raise
            part = b""
        if not part:
            break
        written += part
    os.close(own)
    return process.wait(), written.decode(errors="replace")


def screen(written: str) -> str:
    """What stands on a terminal after all that was ``written``. Lines that are longer than it stay in one piece."""
    import pyte

    seen = pyte.Screen(1000, 500)
    pyte.Stream(seen).feed(written)
    lines = [line.rstrip() for line in seen.display]
    while lines and not lines[-1]:
        lines.pop()
    return "".join(f"{line}\n" for line in lines)


def tidy(text: str, folder: Path) -> str:
    """Without the folder it ran in, where PyTorch is installed, and what depends on how busy the machine is."""
    text = SLOW.sub("", text.replace(f"{folder}/", ""))
    text = FOLDED.sub(lambda m: f"  [{count(m[0].count('  File '), 'frame')} of PyTorch]\n", text)
    return re.sub(r'[^\s"]*/site-packages/', "site-packages/", text)


def recording() -> str:
    """The page, from a run of every command in a new folder."""
    parts = [HEAD]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copy(PROGRAM, folder)
        for step in STEPS:
            code, written = at_a_terminal(step.command, folder)
            shown = tidy(screen(written), folder)
            if code != step.code:
                raise SystemExit(f"{step.command} ended with exit code {code}, not {step.code}:\n{shown}")
            ended = f" Its exit code is {code}." if code else ""
            parts.append(f"{step.text}{ended}\n\n```console\n$ {step.command}\n{shown}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(recording())
