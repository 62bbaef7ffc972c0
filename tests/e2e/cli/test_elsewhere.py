"""A capture on another day, of another user, with other modules: what is refused, why, and what helps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from desks import Desk, MakeDesk

QUICK = ("--replays", "1", "--runs", "1", "--no-explain")


@pytest.fixture(scope="module")
def captured(make_desk: MakeDesk) -> Desk:
    """Two failures of one process, the second of which needs a variable of the environment."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PLANTED_MOOD", "bad")
        return make_desk("two_bugs", "moody")


@pytest.mark.slow
def test_a_failure_that_does_not_show_again_writes_no_script(captured: Desk) -> None:
    done = captured.minify("run", "repro.db", 2, *QUICK)
    assert done.returncode == 1
    assert captured.row(2)["state"] == "not_reproduced"
    assert "passes" in captured.row(2)["reason"]
    assert captured.invoke("repro", "repro.db", 2).exit_code == 2


@pytest.mark.slow
def test_blocked_without_its_module_and_trusted_by_another_user(captured: Desk, tmp_path: Path) -> None:
    """In order: not asked, not trusted; trusted, but the backend is gone; it is back."""
    planted, away = captured.path / "planted.py", tmp_path / "planted.py"
    stranger = {"XDG_STATE_HOME": str(tmp_path / "state")}
    done = captured.minify("run", "repro.db", 1, **stranger)
    assert done.returncode == 1
    assert "Capture 1 was not made here. Running it\n" in done.stderr
    assert "\n  - imports planted\n" in done.stderr
    assert "--trust" in captured.row()["reason"]

    shutil.move(planted, away)
    shutil.rmtree(captured.path / "__pycache__", ignore_errors=True)
    done = captured.minify("run", "repro.db", 1, "--trust", **stranger)
    assert done.returncode == 1
    assert captured.row()["state"] == "blocked"
    assert "cannot import 'planted'" in captured.row()["reason"]
    assert "PYTHONPATH" in captured.row()["reason"]

    shutil.move(away, planted)
    done = captured.minify("run", "repro.db", 1, "--trust", *QUICK, **stranger)
    assert done.returncode == 0, done.stderr
    assert captured.row()["state"] == "verified"
    refused = captured.minify("verify", "repro.db", 1, **stranger)
    assert refused.returncode == 3
    assert "not run: it was captured elsewhere, and was not trusted (--trust)" in " ".join(refused.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--match=any", "--error-regex=planted: .* (this|kernel)"])
def test_with_a_wider_match_either_bug_will_do(make_desk: MakeDesk, option: str) -> None:
    """And so there is no child."""
    desk = make_desk("two_bugs")
    assert desk.minify("run", *QUICK, option).returncode == 0
    assert [(row["nodes_after"], row["verified"]) for row in desk.json("list")] == [(1, 1)]


@pytest.mark.slow
def test_data_that_no_recipe_gives_is_embedded_when_asked(make_desk: MakeDesk) -> None:
    desk = make_desk("checksum")
    done = desk.minify("run", *QUICK)
    assert done.returncode == 1
    row = desk.row()
    assert row["state"] == "unverified"
    assert "minify run repro.db 1 --again --embed-data" in row["reason"]
    done = desk.minify("run", "repro.db", 1, "--again", "--embed-data", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "-o FILE" in desk.minify("repro", "repro.db", 1).stderr
    (desk.path / "out").mkdir()
    assert desk.minify("repro", "repro.db", 1, "-o", "out/bug.py").returncode == 0
    assert sorted(p.name for p in (desk.path / "out").iterdir()) == ["bug.py", "repro.safetensors"]
    (desk.path / "out" / "bug.py").unlink()
    (desk.path / "out" / "repro.safetensors").write_bytes(b"another's")
    assert desk.minify("repro", "repro.db", 1, "-o", "out/bug.py").returncode == 2
    assert not (desk.path / "out" / "bug.py").exists()
