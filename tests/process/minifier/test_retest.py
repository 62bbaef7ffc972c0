"""`minify retest` and `pytest repro.db` on scripts that need no torch: what is said of each, and how they end.

The scripts import a module ``toy`` that stands for the compiler; what it does is changed between retests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest
from click.testing import CliRunner, Result

from fxminify.cli import main
from fxminify.minifier.consent import NOT_TRUSTED
from fxminify.minifier.regression.retest import RetestOptions, classify, enough, retest
from fxminify.repro_templates.verify import Verification
from fxminify.store.document.case import Case, Graph, Node
from fxminify.store.failure import Failure, FailureKind, Frame, Phase
from fxminify.store.index import Index, RetestResult
from fxminify.store.signature import signature

FAILS, PASSES, DIES = "raise RuntimeError('planted: no lowering')", "pass", "import os; os._exit(7)"
KEY_ERROR = "raise KeyError('another')"
FAILURE = Failure(
    FailureKind.RUNTIME_ERROR,
    Phase.FORWARD,
    "RuntimeError",
    "planted: no lowering",
    frames=(Frame("toy.py", "compile"),),
)


class Shelf:
    """A directory with an index of cases, and the compiler they are run with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = path / "repro.db"
        (path / "lib").mkdir()
        (path / "torch" / "_dynamo").mkdir(parents=True)
        self.compiler(FAILS)

    def compiler(self, body: str) -> None:
        (self.path / "lib" / "toy.py").write_text(f"def compile():\n    {body}\n")

    def add(self, name: str, *, script: str = "", verified: int = 3, ours: bool = True) -> int:
        """A capture with a minimal case whose graph is told apart by ``name``; without a verified script at 0."""
        graph = Graph((Node(name, "placeholder", name), Node("output", "output", "output", ({"ref": name},))))
        spec = {"name": "toy", "how": "registered", "target": "toy", "module": "toy"}
        case = Case(graph, (1,), backend={**spec, "search_path": [str(self.path / "lib")]}, torch="2.0.0")
        with Index.open(str(self.db), create=True) as index:
            id = index.captures.add(
                case=case, blobs={}, failure=FAILURE, signature=signature(FAILURE), provenance={"torch": "2.0.0"},
                ours=ours,
            )  # fmt: skip
            if verified:
                text = script or "import toy\ntoy.compile()\n"
                index.repros.save(id, "script", text, verified=verified, runs=3, log="", ours=ours)
        return id

    def invoke(self, *args: object) -> Result:
        with contextlib.chdir(self.path):
            return CliRunner().invoke(main, ["retest", "repro.db", *map(str, args)], prog_name="minify")

    def json(self, *args: object) -> tuple[int, list[dict[str, Any]]]:
        done = self.invoke(*args, "--json")
        return done.exit_code, json.loads(done.stdout)

    def results(self, *args: object) -> tuple[int, list[str]]:
        code, rows = self.json(*args)
        return code, [row["result"] for row in rows]

    def pytest(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "fxminify.minifier.regression.pytest_cases",
            "-p",
            "no:cacheprovider",
        ]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COLUMNS"))}
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # an installed fxminify would be the same plugin once more
        return subprocess.run(
            [*command, *args], cwd=self.path, env=env, capture_output=True, text=True, timeout=200, check=False
        )


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Shelf(tmp_path)


@pytest.mark.slow
def test_a_case_fails_is_fixed_and_fails_again(shelf: Shelf) -> None:
    """And the index remembers: what was fixed before is a regression, until it is fixed again."""
    shelf.add("a")
    assert shelf.results() == (0, ["still failing"])
    assert shelf.results("--expect", "fixed") == (1, ["still failing"])
    shelf.compiler(PASSES)
    assert shelf.results("--expect", "failing") == (1, ["fixed"])
    code, (row,) = shelf.json()
    assert (code, row["result"], row["runs"], row["as_expected"]) == (0, "fixed", 2, True)
    assert (row["changed"], "; it failed with the same versions, first seen " in row["standing"]) == ({}, True)
    shelf.compiler(FAILS)
    for _ in range(2):
        code, (row,) = shelf.json()
        assert (code, row["result"], row["as_expected"]) == (1, "still failing", False)
        assert row["message"] == "fixed before, and failing again"
    assert shelf.results("--expect", "failing") == (0, ["still failing"])
    assert len(json.loads(shelf.invoke("--matrix", "--json").stdout)["rows"][0]["results"]) == 1


def test_another_failure_is_news_once(shelf: Shelf) -> None:
    shelf.add("a")
    shelf.compiler(DIES)
    code, (row,) = shelf.json()
    assert (code, row["result"], row["message"]) == (1, "changed", "exit 7: the process left with exit code 7")
    assert row["other_signature"].startswith("v3:")
    assert shelf.results() == (0, ["changed"])


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        (KEY_ERROR, "before the compiler is reached: KeyError: 'another'"),
    ],
)
def test_a_case_that_does_not_reach_the_compiler_cannot_run(shelf: Shelf, compiler: str, said: str) -> None:
    """It says nothing of the bug, so it changes nothing of what is known."""
    shelf.add("a")
    shelf.compiler(compiler)
    code, (row,) = shelf.json("--expect", "failing")
    assert (code, row["result"], row["message"]) == (3, "cannot run", said)
    assert row["standing"].startswith("failing since ")


def test_captures_without_a_verified_script_are_skipped_and_said_so(shelf: Shelf) -> None:
    shelf.add("a", verified=0)
    shelf.add("b")
    code, rows = shelf.json()
    assert (code, [row["result"] for row in rows]) == (0, ["not minified", "still failing"])
    assert rows[0]["message"] == "pending, it has no script: minify run repro.db 1"
    assert shelf.results(1) == (3, ["not minified"])
    assert "1 not minified, 1 still failing" in shelf.invoke().stdout


def test_a_script_from_elsewhere_runs_only_when_trusted(shelf: Shelf) -> None:
    shelf.add("a", ours=False)
    code, (row,) = shelf.json()
    assert (code, row["result"]) == (3, "cannot run")
    assert row["message"] == NOT_TRUSTED
    assert shelf.results("--trust") == (0, ["still failing"])


def test_what_is_asked_about_is_what_would_run(shelf: Shelf) -> None:
    """For its own backend the script, for another one the minimal case with that."""
    id = shelf.add("a", ours=False)
    with Index.open(str(shelf.db)) as index:
        best = replace(index.captures.case(id), context={"grad": False})
        index.repros.save(id, "script", "import toy\ntoy.compile()\n", verified=3, runs=3, log="", case=best)
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return False

    answers = retest(str(shelf.db), [id], RetestOptions(backends=("toy", "eager")), confirm=confirm)
    assert [answer.result for answer in answers] == ["cannot run", "cannot run"]
    own, other = asked
    assert "calls the backend toy" in own
    assert "| toy.compile()" in own
    assert "no_grad" not in own
    assert "calls the backend eager" in other
    assert "| with torch.no_grad()" in other
    assert "toy" not in other


def test_a_script_that_was_changed_meanwhile_runs_only_when_trusted(shelf: Shelf) -> None:
    shelf.add("a")
    with contextlib.closing(sqlite3.connect(shelf.db, isolation_level=None)) as connection:
        connection.execute("UPDATE repros SET text = 'import os'")
    done = shelf.invoke()
    assert "runs the stored script instead of the case:\n  | " in done.stderr
    assert (done.exit_code, shelf.results("--trust")) == (3, (0, ["fixed"]))


def test_an_interrupted_retest_goes_on(shelf: Shelf) -> None:
    """Killed in the second case: the first is not run again, the second is, and no process is left behind."""
    for name in "abc":
        shelf.add(name)
    shelf.compiler(
        f"import pathlib, time; p = pathlib.Path({str(shelf.path)!r}, 'count'); p.open('a').write('.'); "
        f"p.stat().st_size < 3 or pathlib.Path({str(shelf.path)!r}, 'go').exists() or time.sleep(99); {FAILS}"
    )
    command = [sys.executable, "-m", "fxminify", "retest", "repro.db", "--runs", "2"]
    process = subprocess.Popen(command, cwd=shelf.path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not (shelf.path / "count").exists() or (shelf.path / "count").stat().st_size < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said.splitlines()[-1]) == (130, "Interrupted.")
    (shelf.path / "go").touch()
    done = shelf.invoke()
    assert (done.exit_code, (shelf.path / "count").stat().st_size) == (0, 8)
    assert "answered before the interruption" in done.stderr.splitlines()[0]
    with Index.open(str(shelf.db), readonly=True) as index:
        assert [row.capture for row in index.retests.find()] == [1, 2, 3]


def test_several_at_a_time_and_two_commands_on_one_file(shelf: Shelf) -> None:
    for name in "abcd":
        shelf.add(name)
    command = [sys.executable, "-m", "fxminify", "retest", "repro.db", "-j", "2", "--json", "--again"]
    both = [subprocess.Popen(command, cwd=shelf.path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        rows = json.loads(process.communicate(timeout=200)[0])
        assert (process.returncode, [row["id"] for row in rows]) == (0, [1, 2, 3, 4])
    with Index.open(str(shelf.db), readonly=True) as index:
        assert sorted(row.capture for row in index.retests.find()) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_nothing_is_written_when_nothing_shall_be_remembered(shelf: Shelf) -> None:
    shelf.add("a")
    before = shelf.db.read_bytes()
    assert shelf.results("--no-record") == (0, ["still failing"])
    assert shelf.db.read_bytes() == before


def test_junit(shelf: Shelf) -> None:
    """An expected failure is skipped as pytest reports an xfail; control characters cannot break the XML."""
    shelf.add("a", verified=0)
    shelf.add("b")
    shelf.add("c", script="import os, sys\nsys.stderr.write('\\x1b[31m<&]]>\\0\\n')\nsys.stderr.flush()\nos._exit(1)\n")
    shelf.add("d", script="pass\n")
    assert shelf.invoke("--junit", "report.xml").exit_code == 1
    root = ElementTree.parse(shelf.path / "report.xml").getroot()
    (suite,) = root
    assert (root.tag, suite.tag, suite.get("name")) == ("testsuites", "testsuite", "minify retest repro.db")
    counts = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "0", "skipped": "2"}
    digest = signature(FAILURE).digest
    assert [(test.get("classname"), test.get("name")) for test in suite] == [
        ("toy", f"{id}[{digest}] runtime_error") for id in (1, 2, 3, 4)
    ]
    inside = [[(part.tag, part.get("type")) for part in test if part.tag != "system-out"] for test in suite]
    assert inside == [[("skipped", "minify.skip")], [("skipped", "pytest.xfail")], [("failure", "changed")], []]
    assert "<&]]>" in (suite[2].findtext("failure") or "")
    before = shelf.db.read_bytes()
    refused = shelf.invoke("--junit", "no/where.xml")
    assert (refused.exit_code, refused.output) == (2, "Error: cannot write no/where.xml: No such file or directory.\n")
    assert shelf.db.read_bytes() == before  # nothing was run


def test_the_matrix_shows_versions_and_backends(shelf: Shelf) -> None:
    shelf.add("a")
    versions = [
        (RetestResult.FAILING, "2.13.0", "toy"),
        (RetestResult.FIXED, "2.14.0", "toy"),
        (RetestResult.CHANGED, "2.13.0", "other"),
    ]
    with Index.open(str(shelf.db)) as index:
        for result, torch, backend in versions:
            index.retests.add(
                1,
                backend,
                result,
                shown=0,
                runs=2,
                seconds=1.0,
                versions={"torch": torch},
            )
    shown = shelf.invoke("--matrix").stdout.splitlines()
    assert [line.split() for line in shown[:3]] == [
        ["other", "toy", "toy"], ["id", "failure", "2.13.0", "2.13.0", "2.14.0"],
        ["1", "runtime", "error", "other", "fails", "fixed"],
    ]  # fmt: skip
    assert shown[3].startswith("1: fixed in torch 2.14.0 (failed with 2.13.0), first seen ")


def test_pytest_collects_the_cases_of_a_file_that_is_named(shelf: Shelf) -> None:
    shelf.add("a")
    shelf.add("b", script="pass\n")
    shelf.add("c", verified=0)
    shelf.add("d", script="import no_such_package\n")
    shelf.add("e", script="import os\nos._exit(1)\n")
    done = shelf.pytest("repro.db", "-v")
    digest = signature(FAILURE).digest
    outcomes = [line.split(" ")[:2] for line in done.stdout.splitlines() if line.startswith("repro.db::")]
    assert outcomes == [
        [f"repro.db::{id}[{digest}]", outcome]
        for id, outcome in enumerate(["XFAIL", "PASSED", "SKIPPED", "SKIPPED", "FAILED"], 1)
    ]
    assert "changed: exit 1: the process left with exit code 1" in done.stdout
    assert done.returncode == 1
    with Index.open(str(shelf.db), readonly=True) as index:
        assert index.retests.find() == []
    chosen = [f"repro.db::{id}[{digest}]" for id in (1, 2)]
    done = shelf.pytest(*chosen, "--minify-expect", "fixed", "--minify-record")
    assert "1 failed, 1 passed" in done.stdout
    with Index.open(str(shelf.db), readonly=True) as index:
        assert [(row.capture, row.result) for row in index.retests.find()] == [(1, "still failing"), (2, "fixed")]


def test_pytest_collects_no_file_that_only_lies_about(shelf: Shelf) -> None:
    shelf.add("a")
    (shelf.path / "notes.db").write_text("mine")
    (shelf.path / "test_it.py").write_text("def test_it(): pass\n")
    assert "1 passed" in shelf.pytest(".").stdout
    assert shelf.pytest("notes.db").returncode == 4


def test_pytest_says_that_a_file_is_damaged(shelf: Shelf) -> None:
    shelf.add("a")
    shelf.db.write_bytes(shelf.db.read_bytes()[:5000])
    assert "repro.db is damaged or was cut short" in shelf.pytest("repro.db").stdout


@pytest.mark.parametrize(("verified", "of", "runs"), [(3, 3, 2), (6, 20, 31), (10, 20, 13), (1, 10, 898)])
def test_a_failure_that_comes_and_goes_runs_until_its_absence_says_something(verified: int, of: int, runs: int) -> None:
    assert enough(verified, of, 2) == runs


def test_a_script_that_passes_only_where_it_is_watched_is_not_fixed() -> None:
    log = "[reported: exit code 0, 1.0 s]\n\n[plain: SIGSEGV, 1.0 s]\n"
    result, said, _ = classify(Verification(0, 2, (None,), "", log, passed=1))
    assert (result, said) == ("changed", "run without watching it, SIGSEGV")


def test_a_script_that_was_killed_cannot_run() -> None:
    killed = Failure(FailureKind.CRASH, Phase.COMPILE, signal=9)
    assert classify(Verification(0, 2, (killed,)))[0] == "cannot run"


def test_the_torch_of_another_installation_is_not_used(tmp_path: Path) -> None:
    """A backend's directory may be the site-packages of the environment in which it was captured."""
    from fxminify.minifier.reporting.export import search_path

    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "torch").mkdir()
    (tmp_path / "other" / "torch" / "__init__.py").touch()
    graph = Graph((Node("x", "placeholder", "x"), Node("output", "output", "output", ({"ref": "x"},))))
    paths = [str(tmp_path / name) for name in ("mine", "other")]
    assert search_path(Case(graph, (1,), backend={"search_path": paths})) == [paths[0]]


def wheel(folder: Path, version: str, body: str) -> None:
    """A wheel of the compiler ``toy``."""
    folder.mkdir(exist_ok=True)
    about = f"toy-{version}.dist-info"
    files = {
        "toy.py": f"def compile():\n    {body}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: toy\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with ZipFile(folder / f"toy-{version}-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)


@pytest.mark.slow
def test_the_version_of_a_package_since_which_it_fails_is_found(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version runs in an environment of its own; one that cannot be imported is skipped."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shelf.path / "cache"))
    id = shelf.add("a")
    (shelf.path / "lib" / "toy.py").unlink()
    for version, body in {
        "1.0": PASSES,
        "1.5": PASSES,
        "2.0": "import no_such_package",
        "2.1": FAILS,
        "10.0": FAILS,
    }.items():
        wheel(shelf.path / "wheels", version, body)
    words = ("--bisect", "1.0", "10.0", "--package", "toy", "--wheels", "wheels")
    done = shelf.invoke(id, *words)
    assert (done.exit_code, done.stdout) == (0, "fails since toy 2.1 (1.5 passes; 2.0 gave no answer)\n"), done.stderr
    lines = done.stderr.splitlines()
    assert lines.count("minify: installing toy 2.1") == 1
    assert any(line.startswith("minify: toy 2.0: cannot run (ModuleNotFoundError") for line in lines)
    again = shelf.invoke(id, *words, "--json")
    assert "installing" not in again.stderr
    found = json.loads(again.stdout)
    assert (found["passes"], found["fails"], found["between"]) == ("1.5", "2.1", ["2.0"])
    refused = shelf.invoke(id, "--bisect", "2.1", "10.0", "--package", "toy", "--wheels", "wheels")
    assert (refused.exit_code, "does not pass with toy 2.1, it is still failing" in refused.stderr) == (2, True)
    missing = shelf.invoke(id, "--bisect", "1.0", "11.0", "--package", "toy", "--wheels", "wheels")
    assert "does not fail with toy 11.0, it is cannot run: toy cannot be installed" in missing.stderr


def test_a_bisection_is_about_one_failure(shelf: Shelf) -> None:
    shelf.add("a")
    done = shelf.invoke("--bisect", "1.0", "2.0")
    assert (done.exit_code, "minify retest DB ID --bisect GOOD BAD" in done.stderr) == (2, True)
