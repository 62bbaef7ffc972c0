"""`minify repro -o`: the file, and the command that runs it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from desks import Desk
from indexes import add, chain, failing, minify

from fxminify.store.index import Index

SCRIPT = "import torch\n\ntorch.compile(torch.sin)(torch.ones(2))\n"


@pytest.mark.parametrize(
    ("module", "output", "command"),
    [
        ("lib", "out.py", "PYTHONPATH=lib python out.py"),
        ("lib", "lib/out.py", "python lib/out.py"),
        ("my lib", "out.py", "PYTHONPATH='my lib' python out.py"),
        ("", "out.py", "python out.py"),
    ],
)
def test_the_command_names_the_directory_of_the_backend_where_python_needs_it(
    desk: Desk, module: str, output: str, command: str
) -> None:
    case = chain(["sin"])
    if module:
        (desk.path / module).mkdir()
        case = replace(case, backend={**case.backend, "search_path": [str(desk.path / module)]})
    with Index.open(str(desk.db), create=True) as index:
        minify(index, add(index, case, failing("no sin")), case, script=SCRIPT)
    done = desk.invoke("repro", "repro.db", 1, "-o", output)
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    assert done.stderr.splitlines()[-1] == f"minify: {output} is written; run it: {command}"
    assert (desk.path / output).read_text() == SCRIPT
