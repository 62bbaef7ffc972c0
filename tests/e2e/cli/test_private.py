"""A backend that says all that it knows of the machine: nothing of that is in anything that is stored or handed out."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from desks import Desk, MakeDesk
from indexes import texts

pytestmark = pytest.mark.slow

SECRET = "hunter2-long-value"
#: What must be nowhere. The program is a file of that user's, too.
PRIVATE = (SECRET, "zbigniew", "box7", "/home/")
PERSON = {
    "HOME": "/home/zbigniew", "USER": "zbigniew", "LOGNAME": "zbigniew", "HOSTNAME": "box7.zbigniew-lab.example",
    "SECRET_THING": SECRET,
}  # fmt: skip
OTHER = {"HOME": "/home/bob", "USER": "bob", "LOGNAME": "bob", "HOSTNAME": "pluto", "SECRET_THING": "q8.wholly.other"}
OPTION = f"{SECRET}-of-mine"
QUICK = ("--replays", 1, "--runs", 2, "--no-explain")


@pytest.fixture(scope="module")
def desk(make_desk: MakeDesk) -> Desk:
    """Two minified captures: one has all of it in its texts, the other the secret in the options of its backend."""
    made = make_desk()
    shutil.move(made.path / "telling.py", made.path / "train_zbigniew.py")
    for arguments in ([], [OPTION]):
        done = made.minify("capture", "train_zbigniew.py", *arguments, **PERSON)
        assert "captured 1 failure" in done.stderr, done.stderr
    done = made.minify("run", *QUICK, **PERSON)
    assert done.returncode == 0, done.stderr
    return made


def stored(db: Path) -> str:
    """All that is in an index, decompressed, and the bytes of its file."""
    return f"{db.read_bytes().decode('latin-1')}\n{texts(db)}"


def nothing_private(text: str) -> bool:
    return not [value for value in PRIVATE if value.lower() in text.lower()]


def test_the_program_itself_says_it(desk: Desk) -> None:
    """Else the other tests would show nothing."""
    done = desk.run([sys.executable, "train_zbigniew.py"], **PERSON)
    assert all(value in done.stderr for value in PRIVATE)


def test_nothing_of_it_is_in_the_index(desk: Desk) -> None:
    kept = stored(desk.db)
    assert OPTION in kept
    assert nothing_private(kept.replace(OPTION, ""))
    assert [row["state"] for row in desk.json("list", **PERSON)] == ["verified", "verified"]
    message = desk.json("list", **PERSON)[0]["failure"]["message"]
    assert message == "cannot compile for <address> (<host>): <masked>, w.bin"


@pytest.mark.parametrize("format", ["script", "issue", "pytest", "notebook", "bisect"])
def test_nothing_of_it_is_in_a_format(desk: Desk, format: str) -> None:
    done = desk.minify("repro", "repro.db", 1, "--format", format, **PERSON)
    assert done.returncode == 0, done.stderr
    assert "cannot compile for" in done.stdout
    assert nothing_private(done.stdout + done.stderr)


def test_nothing_of_it_is_in_the_bundle_the_page_and_what_is_shown(desk: Desk) -> None:
    done = desk.minify("report", "repro.db", 1, "--bundle", "one.zip", **PERSON)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(desk.path / "one.zip") as archive:
        names = archive.namelist()
        assert "repro.py" in names
        assert all(nothing_private(archive.read(name).decode("latin-1")) for name in names)
    done = desk.minify("report", "repro.db", 1, "-o", "page.html", **PERSON)
    assert done.returncode == 0, done.stderr
    assert nothing_private((desk.path / "page.html").read_text())
    for verb in (["list"], ["list", "--json"], ["show", 1, "--details"], ["show", 1, "--json"], ["history", 1]):
        assert nothing_private(desk.minify(*verb, **PERSON).stdout), verb


def test_what_is_inside_is_computed(desk: Desk) -> None:
    told = desk.json("report", "repro.db", 1, "--what-is-inside", **PERSON)["what_is_inside"]
    assert told["look_at"] == []
    assert any("the home directory, the user name, the host name" in line for line in told["not_inside"])
    assert any("captured with your key" in line for line in told["looked_for"])
    told = desk.json("report", "repro.db", 2, "--what-is-inside", **PERSON)["what_is_inside"]
    value = "the value of the environment variable SECRET_THING"
    assert [line for line in told["look_at"] if value in line] == [f"repro.py: {value}", f"issue.md: {value}"]
    assert SECRET not in json.dumps(told)


def test_a_value_in_the_options_is_said_on_standard_error(desk: Desk) -> None:
    done = desk.minify("repro", "repro.db", 2, **PERSON)
    assert OPTION in done.stdout
    said = [line for line in done.stderr.splitlines() if "SECRET_THING" in line]
    assert len(said) == 1
    assert said[0].startswith("minify: the script has the value of the environment variable SECRET_THING in it: ")
    assert SECRET not in done.stderr


def test_somebody_else_sees_the_same_failure(desk: Desk) -> None:
    done = desk.minify("retest", "repro.db", 1, "--no-record", **OTHER)
    assert "1 still failing" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_shared_index_works_and_has_nothing_of_it(desk: Desk) -> None:
    done = desk.minify("export", "repro.db", "-o", "share.db", **PERSON)
    assert done.returncode == 0, done.stderr
    assert "failure 2: the captured graph and its backend: the value of the environment variable" in done.stdout
    assert nothing_private(stored(desk.path / "share.db").replace(OPTION, ""))
    assert str(desk.path) not in stored(desk.path / "share.db")
    stranger = {**OTHER, "XDG_STATE_HOME": str(desk.path / "stranger")}
    refused = desk.minify("run", "share.db", 1, "--again", *QUICK, **stranger)
    assert "--trust" in refused.stderr
    done = desk.minify("run", "share.db", 1, "--again", "--trust", *QUICK, **stranger)
    assert done.returncode == 0, done.stderr
    assert desk.json("list", "share.db", **stranger)[0]["state"] == "verified"
    told = desk.json("report", "share.db", 1, "--what-is-inside", **stranger)["what_is_inside"]
    assert any("captured elsewhere" in line and "says that fxminify" in line for line in told["looked_for"])
