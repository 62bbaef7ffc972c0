"""The text of an issue: find the code block of a report that fails under a backend, and capture its failure.

Each Python block is run once as a program, under supervision and in the order of the text, until one fails. If none
does, all of them are run as one program, because reports define a model in one block and call it in the next.
"""

from __future__ import annotations

import ast
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...store.errors import StoreError
from ...store.index import CaptureInfo, State
from ...store.index.changes import Changes
from ...store.index.documents import digest
from ...store.parsing import parse
from ...store.text import count, printable
from . import foreign_script, supervise
from .settings import Settings

#: The check of every block: an issue does not say in which form its failure shows.
CHECK = "first:2"
#: The most characters of a text, and the most blocks that are run.
LONGEST, MOST = 1_000_000, 20
_LANGUAGES = {"", "py", "py3", "python", "python3", "pycon", "ipython"}
_PROMPT = re.compile(r"(?:>>>|\.\.\.)(?: |$)")


class NoBlocks(StoreError):
    """The text has no block that can be run, or running one was not agreed to."""


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A code block. ``number`` counts from 1, ``line`` is its line in the text; ``refused`` says why it is not run."""

    number: int
    line: int
    source: str
    refused: str = ""

    @property
    def name(self) -> str:
        return f"block {self.number} (line {self.line})"


@dataclass(frozen=True, slots=True)
class Trial:
    """A block with its ``result`` in words. Block 0 is all blocks as one program."""

    block: int
    line: int
    result: str
    failed: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """The trial as a line for a person."""
        return f"{f'block {self.block} (line {self.line})' if self.block else 'all blocks together'}: {self.result}"


def blocks(text: str) -> list[CodeBlock]:
    """Return the code blocks of a Markdown text. Runs nothing. Raises `NoBlocks` for a text that is too long."""
    from markdown_it import MarkdownIt

    if len(text) > LONGEST:
        raise NoBlocks(f"the text has {len(text):,} characters, at most {LONGEST:,} are read: cut it to the report")
    found: list[CodeBlock] = []
    for token in MarkdownIt().parse(text):
        if token.type in ("fence", "code_block"):
            line = (token.map or [0])[0] + 1
            source = _without_prompts(token.content)
            found.append(CodeBlock(len(found) + 1, line, source, _refused(source, token.info.strip().lower())))
    return found


def _without_prompts(source: str) -> str:
    """Return the statements of an interactive session, or ``source`` itself if it has no prompts."""
    lines = source.splitlines()
    if not any(line.startswith(">>>") for line in lines):
        return source
    return "\n".join(_PROMPT.sub("", line, count=1) for line in lines if _PROMPT.match(line)) + "\n"


def _refused(source: str, language: str) -> str:
    if language.split(" ")[0].strip("{}.") not in _LANGUAGES:
        return f"is {printable(language)[:40]}, not Python"
    if source.lstrip().startswith("Traceback (most recent call last)"):
        return "is a traceback, not Python"
    try:
        tree = parse(source, "block")
    except (SyntaxError, ValueError, RecursionError) as error:
        place = f" in line {error.lineno} of it" if isinstance(error, SyntaxError) and error.lineno else ""
        return f"is not Python{place}: {printable(str(getattr(error, 'msg', error)))}"
    if not any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in tree.body):
        return "has no statement to run"
    return ""


def question(found: Sequence[CodeBlock], name: str) -> str:
    """Return the question whether to run the blocks, with their code."""
    lines = [f"{name} has {count(len(found), 'block')} of Python. Importing it runs them as programs until one fails:"]
    for block in found:
        lines += [f"  - {block.name}:", *(f"    | {printable(line, other='·')}" for line in block.source.splitlines())]
    return "\n".join([*lines, "Run them?"])


def take(
    db: str,
    text: str,
    name: str,
    *,
    modules: Sequence[str] = (),
    backend: str | None = None,
    timeout: float | None = None,
    confirm: Callable[[str], bool] = lambda question: False,
    tell: Callable[[Trial], None] = lambda trial: None,
    stdout: int | None = None,
) -> tuple[list[CaptureInfo], list[Trial]]:
    """Run the blocks of ``text`` until one fails under a backend, and return its captures and all trials.

    ``name`` is the file of the text. ``modules`` are imported first; ``backend`` replaces the one that a block names.
    ``timeout`` is in seconds, for one compile or call. ``tell`` is called with each trial. Raises `NoBlocks` before
    anything runs.
    """
    every = blocks(text)
    usable = [block for block in every if not block.refused]
    trials = [Trial(block.number, block.line, block.refused) for block in every if block.refused]
    for trial in trials:
        tell(trial)
    if not usable:
        raise NoBlocks(f"{name} has no code block of Python. To capture the failures of a program: minify capture FILE")
    if len(usable) > MOST:
        raise NoBlocks(f"{name} has {len(usable)} blocks of Python, at most {MOST} are run: cut it to the report")
    if not confirm(question(usable, name)):
        raise NoBlocks(f"no block of {name} was run: it was not trusted (--trust).")
    programs = usable
    if len(usable) > 1:
        programs = [*usable, CodeBlock(0, usable[0].line, "\n".join(block.source for block in usable))]
    for block in programs:
        rows, result = _run(db, block, modules, backend, timeout, stdout)
        trials.append(Trial(block.number, block.line, result, bool(rows)))
        tell(trials[-1])
        if rows:
            return rows, trials
    return [], trials


def _is_foreign(file: Path) -> bool:
    """Whether a block is a script of PyTorch's own tools."""
    try:
        return bool(foreign_script.read(file).digest)
    except foreign_script.NotForeign:
        return False


def _run(
    db: str,
    block: CodeBlock,
    modules: Sequence[str],
    backend: str | None,
    timeout: float | None,
    stdout: int | None,
) -> tuple[list[CaptureInfo], str]:
    """Run a block once. Returns the captured failures of a backend, and the result in words."""
    changes = Changes(db)
    with tempfile.TemporaryDirectory(prefix="minify-issue-") as folder:
        file, ended = Path(folder, f"block_{block.number or 'all'}.py"), Path(folder, "ended")
        file.write_text(block.source, "utf-8")
        asked = {"file": str(file), "digest": digest(file.read_bytes()), "modules": list(modules), "backend": backend,
                 "ended": str(ended)}  # fmt: skip
        runner = "foreign_run" if _is_foreign(file) else "block_run"
        argv = [f"fxminify.backends.capture.{runner}", json.dumps(asked)]
        code = supervise.run(db, argv, Settings(check=CHECK), module=True, timeout=timeout, hint=False, stdout=stdout)
        if code in (129, 130, 143):
            raise KeyboardInterrupt
        said = printable(ended.read_text("utf-8", "replace")[:300]) if ended.exists() else ""
    rows = changes.rows()
    failed = [row for row in rows if row.state != State.EAGER_REFUSES and not (row.failure and row.failure.absent)]
    if failed:
        return failed, f"fails: {'; '.join(printable(row.headline) for row in failed[:3])}"
    if rows:
        return [], f"is no failure of a backend: {printable(rows[0].reason or rows[0].headline)}"
    if said:
        return [], f"raises outside a backend: {said}"
    return [], "runs, and no backend fails" if "compile" in block.source else "runs, and compiles nothing"
