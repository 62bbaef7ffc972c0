"""Commands in the documents that only read an index are run as they stand there, on an index that is filled.

Those of one document run in order and in one folder. ``make`` says what it would do.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from indexes import add, chain, failing, minify
from reading import ROOT, Command, commands, sessions

from fxminify.docs import terminal
from fxminify.store.index import Index

#: Verbs that only read an index.
QUICK = ("copy", "export", "formats", "gc", "history", "list", "passes", "report", "repro", "show", "tasks")
TEMPLATE = '{{ c.title }}\n\n{% include "script.py.j2" %}\n'


def is_quick(command: Command) -> bool:
    program, verb, *_ = [*command.text.split(), ""]
    quick = program == "make" or (program == "minify" and verb in QUICK) or command.text.endswith("--matrix")
    return quick and "postgresql" not in command.text


COMMANDS = {
    name: [c for block in blocks if block.language == "shell" for c in commands(block) if is_quick(c)]
    for name, blocks in sessions().items()
}


@pytest.mark.parametrize("document", [name for name, found in COMMANDS.items() if found])
def test_commands_that_read_an_index_run_as_they_stand_in_the_document(document: str, tmp_path: Path) -> None:
    (tmp_path / "bug.txt.j2").write_text(TEMPLATE)
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        for name in ("erfinv", "digamma", "sinc"):
            case = chain([name, "sin", "cos"], backend="my_backend")
            add(index, case, failing(f"my_backend has no kernel for {name}", "NotImplementedError"))
        minify(index, 1, chain(["erfinv"], backend="my_backend"))
        minify(index, 3, chain(["sinc"], backend="my_backend"))
    wrong = []
    for command in COMMANDS[document]:
        text = command.text
        if text.startswith("make "):
            text = f"make -C {ROOT} --dry-run {text.removeprefix('make ')}"
        done = subprocess.run(
            ["bash", "-c", text], cwd=tmp_path, env={**terminal.environment(tmp_path), "COLUMNS": "120"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        written = re.search(r" -o (\S+)", text)
        if done.returncode or not (done.stdout if written is None else (tmp_path / written[1]).read_bytes()):
            wrong.append(f"{command}: exit code {done.returncode}\n{done.stderr[-1000:]}")
    assert wrong == []


def test_the_quick_commands_are_most_of_those_about_results() -> None:
    assert len(COMMANDS["docs/guide.md"]) >= 12
    assert {text.partition(" -")[0] for c in COMMANDS["docs/guide.md"] if (text := c.text)} >= {
        "minify list repro.db", "minify show repro.db 3", "minify history repro.db 3", "minify repro repro.db 3",
        "minify export repro.db 3", "minify retest repro.db",
    }  # fmt: skip
