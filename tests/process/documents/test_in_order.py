"""What stands in the documents is run, in order and in one folder a document, as somebody does who reads it.

`reading.NOT_RUN` lists the few commands that no test runs. `test_commands.py` runs the quick ones by themselves.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from reading import NOT_RUN, ON_A_SERVER, ROOT, Block, Command, blocks, commands, sessions
from real_failures import skip_if_gone

from fxminify.docs import terminal

PROGRAMS = Path(__file__).parents[2] / "programs" / "documents"
FOREIGN = Path(__file__).parents[2] / "programs" / "cli" / "foreign.py"
#: Exit codes that the documents announce: a backend failed, an answer is no, a case still fails.
CODES = {
    "minify catch train.py --epochs 1": 1,
    "pytest repro.db --minify-expect fixed": 1,
}
#: The exit code of what a person ends by Ctrl-C.
ENDED = 128 + signal.SIGINT
#: What a person answers at the terminal.
ANSWERS = {"minify import repro.py": "y\n", "minify import minifier_launcher.py --import my_backend": "y\n"}
#: What a reader has by the time of a block of Python, by what stands in it.
BEFORE = {
    "import fxminify": "import torch\nimport my_backend\nfrom train import noise as model\n",
    "fxminify.record(": """
import fxminify
import torch
import my_backend

model, x, mask = (lambda x, mask: torch.i0(x) * mask), torch.ones(2), torch.ones(2)
gm, inputs = torch.fx.symbolic_trace(lambda x: torch.i0(x) + 1), [torch.ones(2)]
try:
    torch.compile(gm, backend="my_backend")(*inputs)
except RuntimeError as error:
    exc = error
""",
    "from fxminify.backends.shipped.onnxrt": "import torch\nmodel, x = torch.nn.Linear(4, 4), torch.ones(2, 4)\n",
}
CELL = "import my_backend, torch\ntorch.compile(lambda x: torch.erfinv(x) + 1, backend='my_backend')(torch.ones(2))"


class Reader:
    """Somebody who tries in a folder what a document says; ``wrong`` has what did not go as it says.

    A server goes on until the next one is started or the reader leaves; `placeholders` says what the reader puts in
    the place of what stands for the reader's own.
    """

    def __init__(self, folder: Path, **placeholders: str) -> None:
        self.folder = folder
        self.placeholders = placeholders
        self.exported: list[str] = []
        self.wrong: list[str] = []
        self._server: subprocess.Popen[bytes] | None = None
        shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", "\n".join([*self.exported, command])], cwd=self.folder, env=self.environment(),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip

    def environment(self) -> dict[str, str]:
        return {**terminal.environment(self.folder), "COLUMNS": "120"}

    def expect(self, what: object, code: int, said: str, wanted: int = 0) -> None:
        if code != wanted:
            self.wrong.append(f"{what}\nexit code {code}, not {wanted}:\n{said[-2000:]}")

    def do(self, command: Command) -> None:
        """Run a command of a document, and compare its exit code and what it prints with what stands there."""
        if prepare := PREPARE.get(command.text):
            prepare(self)
        text = command.text
        for old, new in self.placeholders.items():
            text = text.replace(old, shlex.quote(new))
        if text.startswith("export "):
            self.exported.append(text)
        elif text.startswith("minify serve "):
            self.serve(command, text)
        elif command.text in ANSWERS:
            self.expect(command, *terminal.at_a_terminal(text, self.folder, ANSWERS[command.text]))
        elif text.startswith("minify work") and "--until-empty" not in text:
            self.expect(command, *self.until_done(text), ENDED)
        else:
            done = self.shell(text)
            self.expect(command, done.returncode, done.stdout + done.stderr, CODES.get(command.text, 0))
            if masked(command.shown) not in masked(done.stderr + done.stdout):
                self.wrong.append(f"{command}\nprints what does not stand there:\n{done.stderr}{done.stdout}")
            if text.startswith("minify tokens") and " --new " in text:
                self.placeholders["fxm_1_..."] = done.stdout.strip()

    def started(self, text: str) -> tuple[subprocess.Popen[bytes], Path]:
        """A process that goes on, once it has said something, and its log."""
        log = self.folder / f"log{len(list(self.folder.glob('log*')))}"
        with log.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", "\n".join([*self.exported, f"exec {text}"])], cwd=self.folder, env=self.environment(),
                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        while "\n" not in log.read_text() and process.poll() is None:
            time.sleep(0.1)
        return process, log

    def until_done(self, text: str) -> tuple[int, str]:
        """Run a worker, and end it by Ctrl-C once every task of its index is done."""
        process, log = self.started(text)
        index = [word for word in shlex.split(text)[2:3] if not word.startswith("-")]
        try:
            open_ = True
            while open_ and process.poll() is None:
                time.sleep(1)
                tasks = json.loads(self.shell(shlex.join(["minify", "tasks", *index, "--json"])).stdout)
                open_ = any(task["state"] in ("queued", "leased") for task in tasks)
            process.send_signal(signal.SIGINT)
            return process.wait(60), log.read_text()
        finally:
            process.kill()

    def serve(self, command: Command, text: str) -> None:
        """Start a server, on a port that is free and however full the disk is, and ask it whether it is ready."""
        self.leave()
        self._server, log = self.started(f"{text} --port 0 --min-free 0")
        first, *_ = log.read_text().splitlines()
        self.placeholders["https://failures.example.com"] = self.address = first.split()[-1]
        if self.asked("/readyz") is None:
            self.wrong.append(f"{command}\n{log.read_text()}")

    def asked(self, path: str, token: str = "") -> Any:
        """What the server answers. Of its certificate, which is the reader's own, only the name is not looked at."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.address + path, headers=headers)
        context = ssl.create_default_context()
        if self.address.startswith("https:"):
            context.load_verify_locations(self.folder / "cert.pem")
            context.check_hostname = False
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return json.load(answer)

    def leave(self) -> None:
        """End the server as a service manager does."""
        if self._server is not None:
            self._server.terminate()
            try:
                self.expect("minify serve", self._server.wait(60), "", 128 + signal.SIGTERM)
            finally:
                self._server.kill()
        self._server = None

    def python(self, block: Block) -> None:
        """Run a block of Python after what its reader has by then."""
        before = next(text for part, text in BEFORE.items() if part in block.text)
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
        ran: nbformat.NotebookNode = client.execute(env={**self.environment(), "PYTHONPATH": str(self.folder)})
        shown = "".join(str(output) for output in ran.cells[2].outputs)
        self.expect(block, int("verified" not in shown), shown)

    def read(self, blocks: list[Block], wanted: Callable[[Command], bool]) -> list[str]:
        """Do what stands in ``blocks``, of the commands only those that are ``wanted``; which commands these were."""
        found = []
        for block in blocks:
            if block.language == "shell":
                for command in commands(block):
                    if wanted(command):
                        self.do(command)
                        found.append(command.text)
            elif block.language == "toml":
                with (self.folder / "pyproject.toml").open("a") as file:
                    file.write(block.text)
            elif block.language == "notebook":
                self.notebook(block)
            else:
                assert block.language == "python", block
                self.python(block)
        return found


@contextmanager
def reading(folder: Path, **placeholders: str) -> Iterator[Reader]:
    """A reader who leaves no server behind."""
    reader = Reader(folder, **placeholders)
    try:
        yield reader
    finally:
        reader.leave()


def masked(text: str) -> str:
    """Without the number of queries, which may differ from run to run."""
    return re.sub(r"\d+ queries", "N queries", text)


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


def _measured(reader: Reader) -> None:
    """The checkout, as far as the tables of the benchmarks are made from it."""
    for part in ("benchmarks/measured.jsonl", "benchmarks/generality_measured.jsonl", "docs/benchmarks.md"):
        (reader.folder / part).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / part, reader.folder / part)


def _certificate(reader: Reader) -> None:
    """The certificate of a server, signed by itself."""
    reader.shell("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out cert.pem")


def _public_key(reader: Reader) -> None:
    """What `/api/v1/status` of the server says, to somebody with a token."""
    server = shlex.quote(reader.placeholders["postgresql+psycopg://user@host/failures"])
    token = reader.shell(f"minify tokens {server} --new me --scope read").stdout.strip()
    reader.placeholders["2507824384e7..."] = reader.asked("/api/v1/status", token)["key"]


SERVE = "minify serve postgresql+psycopg://user@host/failures --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem"
TRUST = "minify work postgresql+psycopg://user@host/failures --trust-key 2507824384e7..."
BENCH = "python -m fxminify.benchmarks.reduce --table --out benchmarks/measured.jsonl --write docs/benchmarks.md"
#: What is there before a command, beside what the commands before it made.
PREPARE: dict[str, Callable[[Reader], None]] = {
    "minify import repro.py": _foreign_files,
    "minify repro repro.db 3 -o repro.py": _no_script_yet,
    "pytest tests/ regressions/repro.db": _regressions,
    BENCH: _measured,
    SERVE: _certificate,
    TRUST: _public_key,
}


def is_for_one_machine(command: Command) -> bool:
    return command.text not in NOT_RUN and ON_A_SERVER not in command.text


#: The documents in which there is something to run but what `test_commands.py` runs.
NAMES = [
    name
    for name, found in sessions().items()
    if any(b.language != "shell" or any(map(is_for_one_machine, commands(b))) for b in found)
    and name != "docs/templates.md"
]


def is_for_a_database_server(command: Command) -> bool:
    """Copies need an empty database: tests/process/store/test_copying.py makes them."""
    return ON_A_SERVER in command.text and not command.text.startswith("minify copy")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_document_can_be_followed_from_its_first_command_to_its_last(name: str, tmp_path: Path) -> None:
    with reading(tmp_path) as reader:
        reader.read(sessions()[name], is_for_one_machine)
    assert reader.wrong == []


@pytest.mark.slow
@pytest.mark.server
def test_what_the_documents_say_of_a_database_server_can_be_followed(url: str, tmp_path: Path) -> None:
    with reading(tmp_path, **{ON_A_SERVER: url}) as reader:
        found = [block for block in sessions()["docs/service.md"] if block.language == "shell"]
        assert len(reader.read(found, is_for_a_database_server)) == 5
    assert reader.wrong == []


@pytest.mark.slow
def test_the_demonstration_has_a_failure_that_its_torch_has(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    shutil.copy(ROOT / "docs" / "demo" / "densenet.py", tmp_path)
    assert reader.shell("minify capture --db repro.db densenet.py").returncode != 0
    done = reader.shell("minify run repro.db --no-explain")
    rows = json.loads(reader.shell("minify list repro.db --json").stdout)
    (row,) = (row for row in rows if row["parent"] is None)  # others were found on the way
    assert (row["state"], row["nodes_after"]) == ("verified", 1), done.stderr


@pytest.mark.slow
def test_the_example_of_the_readme(tmp_path: Path) -> None:
    """The commands at the head of the page print what it shows, and the script is the one below them."""
    skip_if_gone("212_wavelet_logspace_negative")
    shell, script = (block for block in blocks(ROOT / "README.md") if block.heading == "fxminify")
    reader = Reader(tmp_path)
    shutil.copy(ROOT / "docs" / "demo" / "densenet.py", tmp_path)
    *run, last = commands(shell)
    for command in run:
        done = reader.shell(command.text)
        assert command.shown
        assert masked(command.shown) in masked(done.stderr), done.stderr
    printed = reader.shell(last.text).stdout
    (said, _, program), (shown, _, expected) = (text.partition("\n\nimport torch\n") for text in (printed, script.text))
    assert program == expected
    remarks = [re.findall(r"^(Minified by|torch|Run it:)", text, re.MULTILINE) for text in (said, shown)]
    assert remarks == [["Minified by", "torch", "Run it:"]] * 2
