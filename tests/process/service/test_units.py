"""The units for systemd and the container file of ``docs/service``, and the log that they ask for."""

import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import fxminify
from fxminify.cli import main
from fxminify.service.workers.log import json_lines

FOLDER = Path(fxminify.__file__).parent / "docs" / "service"
UNITS = sorted(FOLDER.glob("*.service"))


def test_there_is_a_unit_for_the_server_and_one_for_workers() -> None:
    assert [unit.name for unit in UNITS] == ["fxminify-serve.service", "fxminify-work.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd is not installed")
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/fxminify/bin/minify", sys.executable))
    done = subprocess.run([analyze, "verify", str(here)], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, said) == (0, []), done.stderr


def parsed(words: list[str]) -> None:
    """Raises where `minify` would refuse these words."""
    verb = main.commands[words[0]]
    with click.Context(main, info_name="minify") as parent:
        verb.make_context(words[0], words[1:], parent=parent)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_a_command_that_there_is(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    program, *words = shlex.split(line)
    assert program == "/opt/fxminify/bin/minify"
    parsed([word for word in words if word != "$FXMINIFY_WORK"])
    assert unit.stem == f"fxminify-{words[0]}"


def test_the_image_runs_a_command_that_there_is() -> None:
    text = (FOLDER / "Containerfile").read_text()
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    parsed(json.loads(command))
    (extras,) = re.findall(r"fxminify\[(.*)\]", text)
    known = (FOLDER.parents[1] / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in known for extra in extras.split(","))


@pytest.fixture
def root_log() -> Iterator[None]:
    log, ours = logging.getLogger(), logging.getLogger("fxminify")
    before = log.handlers[:], ours.handlers[:], log.level, ours.level, ours.propagate
    yield
    log.handlers[:], ours.handlers[:], log.level, ours.level, ours.propagate = before


@pytest.mark.usefixtures("root_log")
def test_every_log_becomes_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("uvicorn", "uvicorn.error"):  # a server that another test started has handlers of its own
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    monkeypatch.setattr(logging.getLogger("fxminify"), "propagate", False)
    logging.getLogger("fxminify").addHandler(logging.NullHandler())  # as a capture in this process does
    json_lines()
    logging.getLogger("fxminify").info("serving %s", "it\nhere", extra={"event": "serve"})
    logging.getLogger("uvicorn.error").warning("slow")
    logging.getLogger("uvicorn.error").info("not said")
    try:
        raise KeyError(1)
    except KeyError:
        logging.getLogger("fxminify").exception("it failed")
    first, second, third = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["event"], first["text"]) == ("serve", "serving it\nhere")
    assert (second["event"], second["text"]) == ("warning", "slow")
    assert third["traceback"].endswith("KeyError: 1")
    assert first["at"].endswith("+00:00")


@pytest.mark.parametrize("pause", [0.0, 0.002, 0.005, 0.02, 0.1])
def test_the_server_writes_the_log_that_a_unit_asks_for(tmp_path: Path, pause: float) -> None:
    """Also where it is ended while it begins."""
    command = [sys.executable, "-m", "fxminify", "serve", "repro.db", "--port", "0", "--min-free", "0"]
    with subprocess.Popen(
        [*command, "--log-format", "json"], cwd=tmp_path, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        line = json.loads(process.stderr.readline())
        time.sleep(pause)
        process.terminate()
        rest = process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert line["event"] == "serve"
    assert line["text"].startswith("serving repro.db at http://127.0.0.1:")
    assert [json.loads(other) for other in rest.splitlines() if not other.startswith("Interrupted")] == []
