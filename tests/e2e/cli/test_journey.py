"""The whole way, on planted failures: from an ordinary program to scripts that strangers can run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desks import Desk, MakeDesk

#: Failures of one process, in the order of their ids.
NAMES = ["two_bugs", "imported", "fuses", "edits", "no_kernel", "wrong", "segfaults"]
QUICK = ("--replays", 1, "--runs", 1, "--no-explain")
#: The ids of those that are minified in every test run, and what the row of each says then.
MINIFIED = (1, 3, 6, 7)
VERIFIED = ("verified", 1, 1, 1)
#: What `minify list --json` promises.
KEYS = {
    "id", "parent", "state", "kind", "phase", "backend", "signature", "occurrences", "nodes_before", "nodes_after",
    "inputs_after", "queries", "verified",
}  # fmt: skip


@pytest.fixture(scope="module")
def captured(make_desk: MakeDesk) -> Desk:
    """Seven failures of one process, the last of which killed it."""
    return make_desk(*NAMES, options=["--check"])


@pytest.fixture(scope="module")
def pending(captured: Desk) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = captured.json("list")
    return rows


@pytest.fixture(scope="module")
def run(captured: Desk, pending: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """`minify run` on the same desk; what matters of the result is found out for failures 1 and 3."""
    rest = captured.minify("run", "repro.db", 6, 7, *QUICK)
    assert rest.returncode == 0, rest.stdout
    return captured.minify("run", "repro.db", 1, 3, "--replays", 2, "--runs", 1)


@pytest.fixture(scope="module")
def minified(captured: Desk, run: subprocess.CompletedProcess[str]) -> Desk:
    """The same desk after `minify run`."""
    return captured


@pytest.fixture(scope="module")
def rows(minified: Desk) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in minified.json("list")}


def test_every_failure_of_a_process_is_a_row(pending: list[dict[str, Any]]) -> None:
    assert all(row.keys() >= KEYS for row in pending)
    assert [(r["id"], r["backend"], r["kind"], r["phase"], r["state"], r["occurrences"]) for r in pending] == [
        (1, "raises", "compile_error", "compile", "pending", 1),
        (2, "imported", "compile_error", "compile", "pending", 1),
        (3, "fuses", "compile_error", "compile", "pending", 1),
        (4, "edits", "compile_error", "compile", "pending", 1),
        (5, "no_kernel", "compile_error", "compile", "pending", 1),
        (6, "wrong", "divergence", "forward", "pending", 1),
        (7, "segfaults", "crash", "compile", "pending", 1),
    ]


def test_the_graph_is_the_one_the_backend_received(captured: Desk) -> None:
    """Row 7: the backend had replaced every operator before it failed."""
    graph = captured.json("show", "repro.db", 4)["captured"]["source"]
    assert [name for name in ("sin", "cos", "relu", "sum") if f"{name}(" in graph] == ["sin", "cos", "relu", "sum"]


def test_all_are_minified_to_one_node_and_verified(
    run: subprocess.CompletedProcess[str], rows: dict[int, dict[str, Any]]
) -> None:
    """Registered, with options, wrong numbers, a crash. Those that are left out are as they were."""
    assert run.returncode == 0, run.stdout
    assert {i: (r["state"], r["nodes_after"], r["inputs_after"], r["verified"]) for i, r in rows.items()} == (
        dict.fromkeys(MINIFIED, VERIFIED) | dict.fromkeys((2, 4, 5, 8), ("pending", None, None, 0))
    )
    assert "Print a script: minify repro repro.db 1" in run.stdout


def test_another_failure_on_the_way_is_a_child(
    run: subprocess.CompletedProcess[str], rows: dict[int, dict[str, Any]]
) -> None:
    assert [(i, r["parent"], r["state"], r["headline"]) for i, r in rows.items() if i > 7] == [
        (8, 1, "pending", "ValueError: planted: this has no kernel")
    ]
    assert "1 other failure found on the way: minify run repro.db" in run.stdout


def test_the_history_tells_what_each_step_changed(minified: Desk, rows: dict[int, dict[str, Any]]) -> None:
    found = minified.json("history", "repro.db", 1)
    assert [step["number"] for step in found["steps"]] == list(range(1, len(found["steps"]) + 1))
    assert found["steps"][0]["nodes"] > found["steps"][-1]["nodes"] == 1
    assert any("- sin = torch.sin(l_x_)" in step["difference"] for step in found["steps"])
    assert found["steps"][-1]["difference"][-1] == "+ tanh: float32[1], zeros"
    assert all(step["kept"] for step in found["steps"])
    assert sum(effort["asked"] for effort in found["passes"]) == rows[1]["queries"]
    assert sum(effort["accepted"] for effort in found["passes"]) == len(found["steps"])
    said = minified.invoke("history", "repro.db", 1).output
    assert "      - sin = torch.sin(l_x_)\n" in said
    assert minified.invoke("history", "repro.db", 1, "--step", 1).output in said
    assert minified.invoke("history", "repro.db", 1, "--step", 99).exit_code == 2
    assert minified.invoke("history", "repro.db", 8).output == (
        "Error: capture 8 was not minified yet: minify run repro.db 8\n"
    )


def test_the_line_of_the_program_is_kept(minified: Desk, rows: dict[int, dict[str, Any]]) -> None:
    """The culprit of row 1 is ``torch.relu`` of ``two_bugs``: whatever tells of the failure names its line."""
    assert rows[1]["comes_from"] == "program.py:17 two_bugs"
    assert rows[4]["comes_from"] == ""  # not minified
    assert " (program.py:17 two_bugs)\n" in minified.invoke("list", "repro.db").output
    assert "comes from  program.py:17 two_bugs\n" in minified.invoke("show", "repro.db", 1).output
    assert "\nFrom program.py:17 two_bugs of the program.\n" in minified.invoke("repro", "repro.db", 1).output
    issue = minified.invoke("repro", "repro.db", 1, "--format", "issue").output
    assert "**Where in the program:** `program.py:17 two_bugs`" in issue
    assert minified.invoke("report", "repro.db", "-o", "places.html").exit_code == 0
    assert "<dt>Comes from</dt><dd>program.py:17 two_bugs</dd>" in (minified.path / "places.html").read_text()


def test_what_matters_is_shown_and_reported(minified: Desk, rows: dict[int, dict[str, Any]]) -> None:
    """Row 3 needs its option, row 1 nothing but its operator."""
    details = minified.json("show", "repro.db", 3)
    assert 'option "fuse" = True' in details["matters"]["summary"].partition("Does not matter")[0]
    explained = minified.json("show", "repro.db", 1)["matters"]
    assert explained["summary"] == (
        "Does not matter (as tested): dtype (float64, float16, bfloat16), values (ones, random numbers), "
        "sizes in x.shape[0] (2, 16, 17), requires_grad."
    )
    assert explained["complete"]
    assert explained["variant"]["passes_with"].endswith(" in place of torch.relu")
    said = minified.invoke("show", "repro.db", 1).stdout
    issue = minified.invoke("repro", "repro.db", 1, "--format", "issue").stdout
    for text in (said, issue):
        assert "Does not matter (as tested): dtype (float64, float16, bfloat16), values" in " ".join(text.split())
        assert "+ relu = torch." in text


SCRIPTS = {
    1: ["import planted  # registers", 'backend="raises"', "torch.relu("],
    2: ["from planted import imported", "backend=imported"],
    3: ["options=", '"fuse": True'],
    5: ["import myops", "torch.ops.myops.twice"],
    6: ["torch.testing.assert_close(actual, expected"],
    7: ["dies of SIGSEGV"],
}


@pytest.mark.parametrize("id", MINIFIED)
def test_the_script_is_short_plain_and_needs_nothing_of_ours(minified: Desk, id: int) -> None:
    check_script(minified, id)


def check_script(desk: Desk, id: int) -> None:
    text = desk.invoke("repro", "repro.db", id).stdout
    assert text.isascii()
    assert len(text.splitlines()) < 40
    assert "import fxminify" not in text
    assert [part for part in SCRIPTS[id] if part not in text] == []


def run_in(folder: Path, desk: Desk, *command: str) -> subprocess.CompletedProcess[str]:
    """``command`` in ``folder``, where only the modules of the backend and the operators can be imported."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(desk.path), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_script_fails_elsewhere_with_the_same_error(minified: Desk, tmp_path: Path) -> None:
    assert minified.minify("repro", "repro.db", 1, "-o", tmp_path / "repro.py").stdout == ""
    done = run_in(tmp_path, minified, "repro.py")
    assert done.returncode == 1
    assert "RuntimeError: planted: cannot lower this" in done.stderr


def test_the_pytest_file_expects_the_failure(minified: Desk, rows: dict[int, dict[str, Any]]) -> None:
    made = minified.json("repro", "repro.db", 1, "--format", "pytest")
    assert made["verified"] == 2
    assert "@pytest.mark.xfail(" in made["text"]
    check_privacy(minified, 1, made["text"])


@pytest.mark.slow
def test_bisect_says_there_or_gone(minified: Desk, rows: dict[int, dict[str, Any]], tmp_path: Path) -> None:
    text = minified.json("repro", "repro.db", 1, "--format", "bisect")["text"]
    check_privacy(minified, 1, text)
    (tmp_path / "is_bad.py").write_text(text)
    assert run_in(tmp_path, minified, "is_bad.py").returncode == 1
    planted = (minified.path / "planted.py").read_text()
    (tmp_path / "planted.py").write_text(planted.replace('"relu"', '"no such operator"'))
    assert run_in(tmp_path, minified, "is_bad.py").returncode == 0


@pytest.mark.slow
def test_nothing_of_this_machine_is_in_the_notebook(minified: Desk, rows: dict[int, dict[str, Any]]) -> None:
    check_privacy(minified, 1, minified.json("repro", "repro.db", 1, "--format", "notebook")["text"])


def test_the_issue_holds_the_script(minified: Desk) -> None:
    script = minified.invoke("repro", "repro.db", 1).stdout
    issue = minified.invoke("repro", "repro.db", 1, "--format", "issue").stdout
    _, _, program = script.rstrip().partition('"""\n\n')
    assert program.startswith("import torch\n")
    assert f"```python\n{program}\n```" in issue
    assert issue.count("planted: cannot lower this") == 2  # in the title, and in the log of the error


@pytest.mark.parametrize("id", [*MINIFIED, 8])
def test_nothing_of_this_machine_is_shown(minified: Desk, rows: dict[int, dict[str, Any]], id: int) -> None:
    check_privacy(minified, id)


def check_privacy(desk: Desk, id: int, *said: str) -> None:
    """No directory, user or host name, in whatever may be handed on."""
    said += tuple(desk.invoke("show", "repro.db", id, *options).stdout for options in ([], ["--json"]))
    if id < 8:
        said += tuple(desk.invoke("repro", "repro.db", id, "--format", f).stdout for f in ("script", "issue"))
    private = [str(desk.path), desk.path.name, os.path.expanduser("~"), socket.gethostname(), sys.prefix]
    assert all(said)
    assert [(word, text) for text in said for word in private if word in text] == []


def test_an_output_is_not_overwritten_unless_forced(minified: Desk, tmp_path: Path) -> None:
    output = tmp_path / "mine.py"
    output.write_text("mine")
    done = minified.invoke("repro", "repro.db", 1, "-o", output)
    assert (done.exit_code, output.read_text()) == (2, "mine")
    assert done.stderr == f"Error: {output} exists; add --force to overwrite it.\n"
    assert minified.invoke("repro", "repro.db", 1, "-o", output, "--force").exit_code == 0
    assert "torch.relu" in output.read_text()


def test_a_name_that_would_hide_a_module_is_refused(minified: Desk, tmp_path: Path) -> None:
    done = minified.minify("repro", "repro.db", 1, "--format", "bisect", "-o", tmp_path / "bisect.py")
    assert done.returncode == 2
    assert done.stderr == "Error: bisect.py would hide the module bisect from the script; choose another name.\n"


def test_what_is_done_is_not_done_again(minified: Desk, rows: dict[int, dict[str, Any]]) -> None:
    done = minified.minify("run", "repro.db", 1)
    assert done.returncode == 0
    assert "--again" in done.stdout


def test_tables_fit_eighty_columns(minified: Desk, rows: dict[int, dict[str, Any]]) -> None:
    listed = minified.minify("list", "--each", COLUMNS="80").stdout.splitlines()
    assert max(map(len, listed)) <= 80
    for row, line, said in zip(rows.values(), listed[1::2], listed[2::2], strict=True):
        assert line.split()[:4] == [str(row["id"]), row["state"], *row["kind"].split("_"), row["backend"]][:4]
        assert said.split()[:3] == row["headline"].split()[:3]


def test_a_file_that_cannot_be_written_is_still_read(minified: Desk, rows: dict[int, dict[str, Any]]) -> None:
    copy = minified.path / "copy"
    copy.mkdir()
    shutil.copy(minified.db, copy)
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    copy.chmod(0o500)
    assert [minified.minify(*v).returncode for v in (["list", "copy/repro.db"], ["show", "copy/repro.db", 1])] == [0, 0]


@pytest.fixture
def desk(minified: Desk, tmp_path: Path) -> Desk:
    """A copy of the desk, for what changes it."""
    copy = Desk(tmp_path)
    shutil.copytree(minified.path, tmp_path, dirs_exist_ok=True)
    return copy


@pytest.mark.slow
def test_imported_backends_and_custom_operators_are_minified_alike(desk: Desk) -> None:
    rows = desk.json("run", "repro.db", 2, 5, *QUICK)
    assert {r["id"]: (r["state"], r["nodes_after"], r["inputs_after"], r["verified"]) for r in rows} == (
        dict.fromkeys((2, 5), VERIFIED)
    )
    for id in (2, 5):
        check_script(desk, id)
        check_privacy(desk, id)


@pytest.mark.slow
def test_a_later_run_takes_up_the_child(desk: Desk) -> None:
    (row,) = desk.json("run", "repro.db", 8, *QUICK)
    assert (row["id"], row["parent"], row["state"], row["nodes_after"]) == (8, 1, "verified", 1)
    assert "torch.tanh" in desk.invoke("repro", "repro.db", 8).stdout


@pytest.mark.slow
def test_a_run_goes_on_from_a_step(desk: Desk) -> None:
    before = desk.json("history", "repro.db", 3)
    (row,) = desk.json("run", "repro.db", 3, "--from-step", 1, *QUICK)
    assert (row["id"], row["state"], row["nodes_after"]) == (3, "verified", 1)
    after = desk.json("history", "repro.db", 3)
    assert after["config"]["from"] == [before["reduction"], 1]
    assert after["start_nodes"] == before["steps"][0]["nodes"]
    said = desk.invoke("history", "repro.db", 3).output
    assert f"Reduction {after['reduction']}, begun at step 1 of reduction {before['reduction']}, from" in said
    for words in (["--from-step", 2], ["1", "3", "--from-step", 2], ["3", "--from-step", 99]):
        assert desk.invoke("run", "repro.db", *words).exit_code == 2
    assert desk.row(3)["state"] == "verified"


@pytest.fixture
def planted(minified: Desk) -> Iterator[Path]:
    """The module of the backends, which is as it was afterwards."""
    file = minified.path / "planted.py"
    text = file.read_text()
    yield file
    file.write_text(text)


@pytest.mark.slow
def test_verify_says_when_the_bug_is_gone(desk: Desk, planted: Path, rows: dict[int, dict[str, Any]]) -> None:
    shown = desk.minify("verify", "repro.db", 1, "--runs", 1).stdout
    assert shown == f"1: 1 of 1 runs show {rows[1]['signature']}\n"
    planted.write_text(planted.read_text().replace('"relu"', '"no such operator"'))
    done = desk.minify("verify", "repro.db", 1, "--runs", 1)
    assert (done.returncode, done.stdout.startswith(f"1: 0 of 1 runs show {rows[1]['signature']} (")) == (1, True)
    (found,) = desk.json("retest", "repro.db", 1)
    assert (found["result"], found["as_expected"]) == ("fixed", True)
    assert set(found["versions"]) >= {"torch", "python", "numpy"}
    said = " ".join(desk.invoke("show", "repro.db", 1).stdout.split())
    assert "; it failed with the same versions, first seen" in said
