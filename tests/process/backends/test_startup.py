"""`FXMINIFY=1`: capture in every Python process of the installation, with no change of its command."""

import os
import site
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fxminify.backends.capture import startup
from fxminify.store.index import CaptureInfo, Index

FAILS = """
import sys
import torch

def cannot(gm, inputs):
    raise RuntimeError(f"cannot compile {sys.argv[1:]}")

try:
    torch.compile(torch.sin, backend=cannot)(torch.ones(2))
except Exception as error:
    print("caught", type(error).__name__)
"""
STARTS_ANOTHER = """
import os, subprocess, sys
os.chdir("elsewhere")
subprocess.run([sys.executable, os.path.join("..", "fails.py"), "of another"], check=True)
"""
LOADS = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

def no_cos(gm, inputs):
    raise RuntimeError("no cos in the program")

def no_sin(gm, inputs):
    raise RuntimeError("no sin in a worker")

def failures(function, backend):
    try:
        torch.compile(function, backend=backend)(torch.ones(2))
    except Exception:
        return 1
    return 0

class Rows(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, number):
        return torch.tensor(failures(torch.sin, no_sin))

if __name__ == "__main__":
    before = failures(torch.cos, no_cos)
    loader = DataLoader(Rows(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1])
    print(before, sum(int(row) for row in loader))
"""
SUITE = """
import pytest
import torch

@pytest.mark.parametrize("name", ["sin", "cos"])
def test_model(name):
    def cannot(gm, inputs):
        raise RuntimeError(f"no {name}")

    with pytest.raises(Exception, match=f"no {name}"):
        torch.compile(getattr(torch, name), backend=cannot)(torch.ones(2))
"""
RANKS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
name = ("sin", "cos")[dist.get_rank()]

def cannot(gm, inputs):
    raise RuntimeError(f"no {name}")

failed = torch.zeros(1)
try:
    torch.compile(getattr(torch, name), backend=cannot)(torch.ones(2))
except Exception:
    failed += 1
dist.all_reduce(failed)
if dist.get_rank() == 0:
    print("failed:", int(failed))
dist.destroy_process_group()
"""


def run(folder: Path, command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "fails.py").write_text(FAILS)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith((startup.SWITCH, "PYTEST"))}
    env = {**inherited, "XDG_STATE_HOME": str(folder / "state"), **variables}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def captures(db: Path) -> list[CaptureInfo]:
    with Index.open(str(db), readonly=True) as index:
        return list(index.captures.find())


def test_the_file_is_installed_as_it_is_written_here() -> None:
    places = [Path(place, startup.PTH) for place in site.getsitepackages()]
    assert [file.read_text() for file in places if file.exists()] == [startup.LINE]


def test_a_program_is_captured_and_told_what_to_type(tmp_path: Path) -> None:
    done = run(tmp_path, ["fails.py"], FXMINIFY="1")
    assert (done.returncode, done.stdout) == (0, "caught BackendCompilerFailed\n")
    assert "fxminify: captured 1 failure (1 compile error); next: minify run " in done.stderr
    assert f"{tmp_path / 'repro.db'} 1" in done.stderr
    (found,) = captures(tmp_path / "repro.db")
    assert found.headline == "RuntimeError: cannot compile []"


def test_a_process_of_the_program_stores_into_the_same_index(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "starts.py").write_text(STARTS_ANOTHER)
    assert run(tmp_path, ["starts.py"], FXMINIFY_DB="all.db").returncode == 0
    assert [found.headline for found in captures(tmp_path / "all.db")] == [
        "RuntimeError: cannot compile ['of another']"
    ]


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({}, False),
        ({"FXMINIFY": "1"}, True),
        ({"FXMINIFY": "yes", "FXMINIFY_DB": "all.db"}, True),
        ({"FXMINIFY_DB": "all.db"}, True),
        ({"FXMINIFY_DB": ""}, False),
        ({"FXMINIFY": "0", "FXMINIFY_DB": "all.db"}, False),
        ({"FXMINIFY": " Off "}, False),
    ],
)
def test_it_is_off_unless_it_is_asked_for(variables: dict[str, str], on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (startup.SWITCH, startup.DATABASE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert startup.is_asked_for() is on


def test_where_it_is_off_a_program_is_as_it_was(tmp_path: Path) -> None:
    done = run(tmp_path, ["fails.py"], FXMINIFY="0")
    assert (done.stdout, done.stderr) == ("caught BackendCompilerFailed\n", "")
    assert list(tmp_path.glob("*.db")) == []


def test_the_settings_of_the_project_hold(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.fxminify]\nlevel = 'aot'\ncheck = true\n")
    program = tmp_path / "src" / "program"
    program.mkdir(parents=True)
    code = "from fxminify.backends.capture.hook import _hook; print(_hook.everything.settings)"
    assert "check=True, tolerance='', data='auto', level='aot'" in run(program, ["-c", code], FXMINIFY="1").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.fxminify]\nlevels = 'aot'\n", "[tool.fxminify] has no setting levels; it has check, tolerance"),
        ("[tool.fxminify]\nlevel = 'all'\n", "level is one of auto, dynamo, aot, not 'all'"),
        ("[tool.fxminify\n", "pyproject.toml cannot be read"),
    ],
)
def test_wrong_settings_are_one_line_and_the_program_runs(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)']); print(2)"
    done = run(tmp_path, ["-c", again], FXMINIFY="1")
    assert done.stdout == "1\n2\n"
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_nothing_of_it_is_imported_where_it_is_off(tmp_path: Path) -> None:
    code = "import sys; print([name for name in sys.modules if name.startswith('fxminify')])"
    assert run(tmp_path, ["-c", code]).stdout == "[]\n"


def test_torch_is_imported_no_sooner(tmp_path: Path) -> None:
    assert run(tmp_path, ["-c", "import sys; print('torch' in sys.modules)"], FXMINIFY="1").stdout == "False\n"


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_of_a_data_loader_capture_into_the_index_of_the_program(tmp_path: Path, context: str) -> None:
    (tmp_path / "loads.py").write_text(LOADS)
    done = run(tmp_path, ["loads.py", context], FXMINIFY="1")
    assert (done.returncode, done.stdout) == (0, "1 2\n"), done.stderr
    found = {row.headline: row.occurrences for row in captures(tmp_path / "repro.db")}
    assert found == {"RuntimeError: no cos in the program": 1, "RuntimeError: no sin in a worker": 2}


@pytest.mark.slow
def test_workers_of_pytest_xdist_capture(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = run(tmp_path, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "test_suite.py"], FXMINIFY="1")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    found = {(row.headline, row.provenance["test"]) for row in captures(tmp_path / "repro.db")}
    assert found == {(f"RuntimeError: no {name}", f"test_suite.py::test_model[{name}]") for name in ("sin", "cos")}


@pytest.mark.slow
def test_ranks_of_torchrun_capture(tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py"]
    done = run(tmp_path, launcher, FXMINIFY="1")
    assert (done.returncode, done.stdout) == (0, "failed: 2\n"), done.stderr
    assert {row.headline for row in captures(tmp_path / "repro.db")} == {"RuntimeError: no sin", "RuntimeError: no cos"}
