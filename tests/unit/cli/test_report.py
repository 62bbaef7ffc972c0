"""`minify report`: one zip for those who can repair it, and the command that files the issue."""

from __future__ import annotations

import hashlib
import json
import shlex
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import click
import indexes
import pytest
from desks import Desk
from indexes import one_relu
from reports import fitting

from fxminify.minifier.reporting import bundle as bundles
from fxminify.minifier.reporting import record
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index, State
from fxminify.store.signature import signature

FAILURE = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "no kernel for 'relu' in /home/me/x.cpp")


def minified(db: Path, *, verified: int = 3, **backend: Any) -> int:
    """A capture with its script, made by hand: no torch."""
    case, blobs = one_relu(**{"target": "eager", **backend})
    with Index.open(str(db), create=True) as index:
        id = index.captures.add(
            case=case, blobs=blobs, failure=FAILURE, signature=signature(FAILURE), provenance={"program": "x.py"}
        )
        reduction = index.reductions.begin(id, {})
        index.reductions.accept(reduction.id, case, blobs)
        index.repros.save(id, "script", "raise SystemExit(1)\n", verified=verified, runs=3, log="")
        index.captures.set_state(id, State.VERIFIED if verified else State.UNVERIFIED)
    return id


def test_a_bundle_is_listed_and_its_manifest_true(desk: Desk) -> None:
    minified(desk.db)
    done = desk.invoke("report", "repro.db", 1, "--bundle", "out.zip")
    assert done.exit_code == 0, done.output
    with zipfile.ZipFile(desk.path / "out.zip") as archive:
        names = archive.namelist()
        manifest = json.loads(archive.read("manifest.json"))
        assert {e["name"]: e["sha256"] for e in manifest["files"]} == {
            name: hashlib.sha256(archive.read(name)).hexdigest() for name in names if name != "manifest.json"
        }
        assert {item.date_time for item in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.read("repro.py") == b"raise SystemExit(1)\n"
        handed = fitting(json.loads(archive.read("report.json")))
        assert (handed["failure"]["kind"], handed["provenance"]) == ("compile_error", {})
        assert "/home/me" not in handed["failure"]["message"]
    assert [line.split()[0] for line in done.stdout.splitlines()] == names
    assert (manifest["files"][0]["verified"], manifest["files"][0]["runs"]) == (3, 3)


def test_a_result_that_was_minimal_from_the_start_can_be_handed_out(desk: Desk) -> None:
    """Its reduction has no step at all."""
    id = minified(desk.db)
    with Index.open(str(desk.db)) as index:
        capture, case = index.captures.get(id), index.captures.case(id)
        record.keep(index, id, record.make_header(capture, case, FAILURE, queries=3, timeout=10.0))
    for format in ("script", "issue"):
        done = desk.invoke("repro", "repro.db", id, "--format", format)
        assert done.exit_code == 0, done.output
    assert "no kernel for" in done.stdout


def test_a_bundle_has_the_same_bytes_each_time_and_is_not_overwritten(desk: Desk) -> None:
    minified(desk.db)
    desk.invoke("report", "repro.db", 1, "--bundle", "out.zip")
    first = (desk.path / "out.zip").read_bytes()
    refused = desk.invoke("report", "repro.db", 1, "--bundle", "out.zip")
    assert (refused.exit_code, refused.stderr) == (2, "Error: out.zip exists; add --force to overwrite it.\n")
    assert desk.invoke("report", "repro.db", 1, "--bundle", "out.zip", "--force").exit_code == 0
    assert (desk.path / "out.zip").read_bytes() == first


def test_a_bundle_that_nobody_could_attach_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    minified(desk.db)
    monkeypatch.setattr(bundles, "MOST_BYTES", 100)
    refused = desk.invoke("report", "repro.db", 1, "--bundle", "out.zip")
    assert refused.exit_code == 2
    assert "at most 100 can be attached; the largest file is " in refused.stderr
    assert not (desk.path / "out.zip").exists()


def test_the_command_for_gh_is_one_that_a_shell_reads_back(desk: Desk) -> None:
    minified(desk.db)
    done = desk.invoke("report", "repro.db", 1, "--to", "gh")
    made, filed = done.stdout.split(" | ")
    assert shlex.split(made) == ["minify", "repro", "repro.db", "1", "--format", "issue"]
    assert shlex.split(filed) == [
        "gh", "issue", "create", "--repo", "pytorch/pytorch",
        "--title", "[eager] torch.relu: compile error: RuntimeError: no kernel for 'relu' in x.cpp",
        "--body-file", "-",
    ]  # fmt: skip


def test_a_script_that_was_not_verified_is_not_handed_out_unasked(desk: Desk) -> None:
    minified(desk.db, verified=0)
    refused = desk.invoke("report", "repro.db", 1, "--to", "gh")
    assert refused.exit_code == 2
    assert "did not show the failure" in refused.stderr


def test_what_is_inside_says_what_leaves_and_what_does_not(desk: Desk) -> None:
    minified(desk.db)
    done = desk.invoke("report", "repro.db", 1, "--what-is-inside")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "Inside:",
        "  graph, as it was captured: torch.relu",
        "  names, as in the program: x",
        "  values of 1 tensor, needed to show the failure, maybe captured: float32[4]",
        "  backend: the name eager",
    ]
    assert "Not inside:" in lines
    renamed = desk.invoke("report", "repro.db", 1, "--what-is-inside", "--rename", "--json")
    assert json.loads(renamed.stdout)["what_is_inside"]["inside"][1] == "names: neutral ones"


def test_what_is_inside_of_the_page(desk: Desk) -> None:
    minified(desk.db)
    told = desk.invoke("report", "repro.db", "--what-is-inside")
    assert told.exit_code == 0, told.output
    assert not (desk.path / "repro.html").exists()
    lines = told.stdout.splitlines()
    assert lines[:2] == ["Inside:", "  the list: 1 failure with backend, sizes and the first line of the error"]
    assert "  graphs as captured, with names of the program: of 1 failure" in lines
    assert not any("graph as it was captured" in line for line in lines)
    done = desk.invoke("report", "repro.db", 1, "-o", "page.html", "--what-is-inside", "--json")
    assert json.loads(done.stdout)["what_is_inside"]["inside"][0] == lines[1].strip()
    assert (desk.path / "page.html").exists()


def test_what_was_made_elsewhere_is_handed_out_unrun_and_says_so(desk: Desk) -> None:
    minified(desk.db)
    done = desk.invoke("repro", "repro.db", 1, "--format", "pytest")
    assert done.exit_code == 0, done.output
    assert done.stderr == "Tentative: not run here, where the capture was not made: --trust runs it\n"
    assert "TENTATIVE: not run here" in done.stdout


def test_a_template_of_ones_own(desk: Desk) -> None:
    minified(desk.db)
    (desk.path / "mine.j2").write_text("{{ c.backend }}: {{ c.functions }}")
    assert desk.invoke("repro", "repro.db", 1, "--template", "mine.j2").stdout.startswith("eager: def forward(x):")
    (desk.path / "mine.j2").write_text("{{ c.nothing }}")
    refused = desk.invoke("repro", "repro.db", 1, "--template", "mine.j2")
    assert refused.exit_code == 2
    assert "docs/templates.md lists what it sees" in refused.stderr


def test_a_capture_that_was_not_minified_is_offered_to_be(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:

    from fxminify.minifier.commands import repro, run

    minified(desk.db)
    with sqlite3.connect(desk.db) as connection:
        connection.execute("DELETE FROM repros")
    connection.close()
    asked: list[str] = []
    ran: list[tuple[str, list[int]]] = []

    def confirm(question: str, **options: object) -> bool:
        asked.append(question)
        return len(asked) == 2

    monkeypatch.setattr(repro, "at_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    monkeypatch.setattr(run, "minify_with_progress", lambda db, ids, *args, **options: ran.append((db, ids)))
    for times in (0, 1):  # first the answer is no, then yes
        refused = desk.invoke("repro", "repro.db", 1)
        assert (refused.exit_code, len(ran)) == (2, times)
        assert "make one: minify run repro.db 1" in refused.stderr
    assert asked[0].endswith("Minify it now?")
    assert ran == [("repro.db", [1])]


def test_the_page_is_opened_where_that_was_asked_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    indexes.small(desk.db)
    opened: list[str] = []

    def launch(path: str) -> int:
        opened.append(path)
        return len(opened) - 1

    monkeypatch.setattr(click, "launch", launch)
    assert desk.invoke("report", "repro.db", "--open").exit_code == 0
    assert [Path(path).name for path in opened] == ["repro.html"]
    failed = desk.invoke("report", "repro.db", "--open", "--force")
    assert (failed.exit_code, failed.stderr) == (2, "Error: no browser opens repro.html here.\n")
    refused = desk.invoke("report", "repro.db", 1, "--to", "gh", "--open")
    assert (refused.exit_code, refused.stderr) == (
        2, "Error: --open is for the HTML report; it does not go with --bundle or --to.\n",
    )  # fmt: skip
