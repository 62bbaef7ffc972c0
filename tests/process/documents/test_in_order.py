"""What stands in the documents is run, in order and in one folder a document, as somebody does who reads it.

`reading.NOT_RUN` lists the few commands that no test runs. `test_commands.py` runs the quick ones by themselves.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from indexes import add, chain, failing, minify
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from reading import NOT_RUN, ROOT, Block, Command, blocks, commands, sessions

from fxminify.docs import terminal
from fxminify.store.index import Index

PROGRAMS = Path(__file__).parents[2] / "programs" / "documents"
FOREIGN = Path(__file__).parents[2] / "programs" / "cli" / "foreign.py"
SERVER = "postgresql+psycopg://user@host/failures"
#: Exit codes that the documents announce: a backend failed, an answer is no, a case still fails.
CODES = {
    "minify catch train.py --epochs 1": 1,
    "pytest repro.db --minify-expect fixed": 1,
}
#: What a person ends by Ctrl-C, once no task is open.
ENDLESS = ("minify work",)
#: What a person answers at the terminal.
ANSWERS = {"minify import repro.py": "y\n", "minify import minifier_launcher.py --import my_backend": "y\n"}
#: What a reader has by the time of a block, by its first line.
BEFORE = {
    "import fxminify": "import torch\nimport my_backend\nfrom train import noise as model\n",
    "fxminify.record(": """
import fxminify
import torch
import my_backend

gm, inputs = torch.fx.symbolic_trace(lambda x: torch.sinc(x) + 1), [torch.ones(2)]
exc = TypeError("my_backend has no sinc for float32")
""",
    "from fxminify.backends.shipped.onnxrt": "import torch\nmodel, x = torch.nn.Linear(4, 4), torch.ones(2, 4)\n",
    "from fxminify.minifier": "",
}
CELL = "import my_backend, torch\ntorch.compile(lambda x: torch.erfinv(x) + 1, backend='my_backend')(torch.ones(2))"


class Reader:
    """Somebody who tries in a folder what a document says; ``wrong`` has what did not go as it says."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.variables = variables
        self.wrong: list[str] = []
        shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)

    def shell(self, command: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def environment(self) -> dict[str, str]:
        return {**terminal.environment(self.folder), "COLUMNS": "120"}

    def expect(self, what: object, code: int, said: str, wanted: int = 0) -> None:
        if code != wanted:
            self.wrong.append(f"{what}\nexit code {code}, not {wanted}:\n{said[-2000:]}")

    def do(self, command: Command) -> None:
        """Run a command of a document, and compare its exit code and what it prints with what stands there."""
        text = command.text
        for old, new in self.variables.items():
            text = text.replace(old, shlex.quote(new))
        if prepare := PREPARE.get(command.text):
            prepare(self)
        if command.text.startswith("make "):
            done = self.shell(f"make -C {ROOT} --dry-run {command.text.removeprefix('make ')}")
        elif command.text in ANSWERS:
            self.expect(command, *terminal.at_a_terminal(text, self.folder, ANSWERS[command.text]))
            return
        elif text.startswith(ENDLESS) and "--until-empty" not in text:
            self.expect(command, *self.until_done(text))
            return
        else:
            done = self.shell(text)
        self.expect(command, done.returncode, done.stdout + done.stderr, CODES.get(command.text, 0))

    def until_done(self, text: str) -> tuple[int, str]:
        """Run what does not end by itself, and end it by Ctrl-C once every task of its index is done."""
        where = text.split()[2:3]
        log = self.folder / "log"
        with log.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {text}"], cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        try:
            deadline = time.monotonic() + 600
            while time.monotonic() < deadline and process.poll() is None:
                time.sleep(3)
                tasks = self.shell(shlex.join(["minify", "tasks", *shlex.split(" ".join(where)), "--json"])).stdout
                if '"queued"' not in tasks and '"leased"' not in tasks:
                    break
            process.send_signal(signal.SIGINT)
            return process.wait(60), log.read_text()
        finally:
            process.kill()

    def python(self, block: Block) -> None:
        """Run a block of Python after what its reader has by then."""
        before = next(text for first, text in BEFORE.items() if block.text.lstrip().startswith(first))
        (self.folder / "block.py").write_text(f"{before}\n{block.text}")
        done = self.shell("python block.py")
        self.expect(block, done.returncode, done.stderr)

    def notebook(self, block: Block) -> None:
        """Run the lines of a block as cells, with a failure after the first."""
        lines = [line.partition("#")[0].strip() for line in block.text.splitlines()]
        cells = [new_code_cell(source) for source in (lines[0], CELL, *lines[1:])]
        cells[1].metadata["tags"] = ["raises-exception"]
        where = {"metadata": {"path": str(self.folder)}}
        client = NotebookClient(new_notebook(cells=cells), kernel_name="python3", timeout=600, resources=where)
        ran: nbformat.NotebookNode = client.execute(env={**os.environ, "PYTHONPATH": str(self.folder)})
        shown = "".join(str(output) for output in ran.cells[2].outputs)
        self.expect(block, int("verified" not in shown), shown)

    def read(self, blocks: list[Block], wanted: Callable[[Command], bool]) -> int:
        """Do what stands in ``blocks``, of the commands only those that are ``wanted``; how many were run."""
        count = 0
        for block in blocks:
            if block.language == "shell":
                for command in commands(block):
                    if wanted(command):
                        self.do(command)
                        count += 1
            elif block.language == "toml":
                with (self.folder / "pyproject.toml").open("a") as file:
                    file.write(block.text)
            elif block.language == "notebook":
                self.notebook(block)
            else:
                assert block.language == "python", block
                self.python(block)
        return count


def _foreign_files(reader: Reader) -> None:
    """What PyTorch's own tools write: ``repro.py`` of Inductor, and a launcher for the backend of the project."""
    shutil.copy(FOREIGN, reader.folder / "foreign.py")
    fail = "import torch, my_backend; torch.compile(lambda x: torch.erfinv(x) + 1, backend='my_backend')(torch.ones(2))"
    reader.shell(f'python foreign.py aot; TORCHDYNAMO_REPRO_AFTER=dynamo TORCHDYNAMO_REPRO_LEVEL=2 python -c "{fail}"')
    (launcher,) = reader.folder.rglob("minifier_launcher.py")
    shutil.copy(launcher, reader.folder)
    shutil.copytree(launcher.parent / "checkpoints", reader.folder / "checkpoints", dirs_exist_ok=True)


def _no_script_yet(reader: Reader) -> None:
    """The name of a script that is to be written is free."""
    (reader.folder / "repro.py").unlink(missing_ok=True)


def _regressions(reader: Reader) -> None:
    """A project that keeps its failures beside its tests."""
    (reader.folder / "regressions").mkdir()
    shutil.copy(reader.folder / "repro.db", reader.folder / "regressions")


#: What is there before a command, beside what the commands before it made.
PREPARE: dict[str, Callable[[Reader], None]] = {
    "minify import repro.py": _foreign_files,
    "minify repro repro.db 3 -o repro.py": _no_script_yet,
    "pytest tests/ regressions/repro.db": _regressions,
}


def filled(db: Path) -> None:
    """Three bugs, the third of which is minified, as if `train.py` had been caught."""
    with Index.open(str(db), create=True) as index:
        for name in ("erfinv", "digamma", "sinc"):
            case = chain([name, "sin", "cos"], backend="my_backend")
            add(index, case, failing(f"my_backend has no kernel for {name}", "NotImplementedError"))
        minify(index, 3, chain(["sinc"], backend="my_backend"), script="import torch\n\nraise SystemExit(1)\n")


NAMES = [name for name, blocks in sessions().items() if blocks]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "docs/service.md"])
def test_a_document_can_be_followed_from_its_first_command_to_its_last(name: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    if name == "docs/templates.md":
        filled(tmp_path / "repro.db")
    if name == "docs/benchmarks.md":
        for part in ("benchmarks/measured.jsonl", "docs/benchmarks.md"):
            (tmp_path / part).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / part, tmp_path / part)
    wanted = lambda command: command.text not in NOT_RUN and SERVER not in command.text  # noqa: E731
    reader.read(sessions()[name], wanted)
    assert reader.wrong == []


@pytest.fixture
def service(tmp_path: Path, url: str) -> Reader:
    """Somebody with a server of their own."""
    return Reader(tmp_path, **{SERVER: url})


@pytest.mark.slow
@pytest.mark.server
def test_the_document_about_many_machines_can_be_followed_on_a_server(service: Reader) -> None:
    assert service.read(sessions()["docs/service.md"], lambda _: True) == 8
    assert service.wrong == []


def masked(text: str) -> str:
    """Without what differs from run to run: the number of queries, and how a failure that depends on threads ends."""
    text = re.sub(r"\d+ queries", "N queries", text)
    return re.sub(r"\b(crash|runtime[_ ]error)\b", "FAILURE", text)


@pytest.mark.slow
def test_the_example_of_the_readme(tmp_path: Path) -> None:
    """The commands at the head of the page print what it shows, and the script is the one below them."""
    shell, script = (block for block in blocks(ROOT / "README.md") if block.heading == "fxminify")
    reader = Reader(tmp_path)
    shutil.copy(ROOT / "docs" / "demo" / "densenet.py", tmp_path)
    *run, last = commands(shell)
    for command in run:
        done = subprocess.run(
            ["bash", "-c", command.text], cwd=tmp_path, env={**reader.environment(), "OMP_NUM_THREADS": "2"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert command.shown
        assert masked(command.shown) in masked(done.stderr), done.stderr
    printed = reader.shell(last.text).stdout
    assert printed.partition("\n\nimport torch\n")[2] == script.text.partition("\n\nimport torch\n")[2]
    remarks = [re.findall(r"^(Minified by|torch|Run it:)", text, re.MULTILINE) for text in (printed, script.text)]
    assert remarks == [["Minified by", "torch", "Run it:"]] * 2
