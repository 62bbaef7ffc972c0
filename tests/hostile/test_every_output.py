"""Every output of every verb, route and page, with every fact planted in every text: none of them is there."""

from __future__ import annotations

import html
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import planted
import pytest
from desks import invoke
from serving import Served, serving


@pytest.fixture(scope="module")
def person() -> Iterator[None]:
    """The environment of the person whose facts are planted."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in planted.PERSON.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def made(person: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("planted") / "repro.db"
    planted.planted(db)
    return db


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copy(made, tmp_path / "repro.db")
    return tmp_path


#: Verbs that show what is stored, each with a file that it writes.
SHOWING = [
    ("list",), ("list", "--each"), ("list", "--json"), ("show", "1"), ("show", "1", "--details"),
    ("show", "1", "--captured"), ("show", "1", "--graph"), ("show", "1", "--json"), ("show", "2"), ("history", "1"),
    ("show", "4"), ("show", "4", "--json"), ("repro", "4", "--format", "issue"), ("repro", "4", "--format", "comment"),
    ("report", "4", "-o", "four.html"), ("report", "4", "--bundle", "four.zip"),
    ("history", "1", "--json"), ("history", "1", "--step", "2"), ("history", "1", "--step", "2", "--json"),
    ("repro", "1"), ("repro", "1", "--json"), ("repro", "1", "--format", "issue"), ("repro", "1", "--format", "pytest"),
    ("repro", "1", "--format", "notebook"), ("repro", "1", "--format", "bisect"), ("repro", "1", "--rename"),
    ("report", "-o", "page.html"), ("report", "1", "-o", "one.html"), ("report", "1", "--to", "gh"),
    ("report", "1", "--bundle", "one.zip"), ("report", "1", "--what-is-inside"), ("report", "--json"),
    ("tasks",), ("tasks", "--json"), ("tokens",), ("tokens", "--json"), ("notify",), ("notify", "--json"),
    ("retest",), ("retest", "--json"), ("retest", "--matrix"), ("retest", "--junit", "junit.xml"), ("verify",),
    ("verify", "--json"), ("run",), ("run", "--json"), ("ablate", "1"), ("export",), ("export", "--json"), ("gc",),
    ("gc", "--json"), ("tasks", "--cancel", "1"), ("tasks", "--retry", "1"),
]  # fmt: skip


def test_facts_are_found() -> None:
    assert planted.left(planted.TEXT) == list(planted.FACTS)


@pytest.mark.parametrize("verb", SHOWING, ids=" ".join)
def test_a_verb_says_nothing_of_it(folder: Path, verb: tuple[str, ...]) -> None:
    before = set(folder.rglob("*"))
    name, *rest = verb
    done = invoke(folder, name, "repro.db", *rest)
    assert done.exit_code in (0, 1, 2, 3), done.output
    assert planted.left(done.stdout) == []
    assert planted.left(done.stderr) == []
    for path in set(folder.rglob("*")) - before:
        if path.suffix in (".html", ".xml", ".py", ".md", ".json"):
            assert planted.left(html.unescape(path.read_text())) == [], path
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                assert "report.json" in names
                assert {name: found for name in names if (found := planted.left(archive.read(name).decode()))} == {}


#: Answers of a server that have texts of an index.
ANSWERS = [
    "/bugs", "/bugs?q=planted", "/bugs/1", "/bugs/2", "/captures/1", "/captures/2", "/captures/4",
    "/tasks", "/workers",
    "/bugs/1/merge?into=2", "/bugs/1?format=issue", "/bugs/1?format=pytest", "/bugs/1/script?format=issue",
    "/api/v1/status", "/api/v1/captures", "/api/v1/captures/1", "/api/v1/captures/2",
    "/api/v1/captures/4", "/api/v1/bugs", "/api/v1/bugs/1",
    "/api/v1/bugs/1/sightings", "/api/v1/bugs/1/script", "/api/v1/bugs/1/script?format=issue", "/api/v1/tasks",
    "/api/v1/workers", "/api/v1/events?seconds=0&after=0", "/metrics",
]  # fmt: skip


@pytest.fixture(scope="module")
def served(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(made, folder / "repro.db")
    with serving(str(folder / "repro.db"), folder / "uploads") as served:
        yield served


@pytest.mark.parametrize("address", ANSWERS)
def test_a_server_says_nothing_of_it(served: Served, address: str) -> None:
    answer = served.ask("GET", address, accept="text/html" if not address.startswith("/api") else "*/*")
    assert answer.status == 200
    assert len(answer.body) > 10
    assert planted.left(html.unescape(answer.body.decode())) == []
