"""The sdist and the wheel that a release builds hold what they need, and work outside of the checkout."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import fxminify
from fxminify.docs import release

ROOT = Path(fxminify.__file__).parent
MODULES = [
    path
    for floor in ("store", "backends", "repro_templates", "minifier", "service")
    for path in sorted((ROOT / floor).rglob("*.py"))
    if path.stem != "__init__" and "migrations" not in path.parts
]
#: What the changelog of a copy says of its version.
NOTES = "### Added\n- Everything.\n"


def git(root: Path, *args: str) -> str:
    settings = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    return subprocess.run(["git", *settings, *args], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the files of this one."""
    root = tmp_path_factory.mktemp("copy") / "fxminify"
    root.mkdir()
    ignored = ["./.*", "./build", "./dist", "*.egg-info", "__pycache__", "*.db", "./tests"]
    excluded = [f"--exclude={pattern}" for pattern in ignored]
    pack = subprocess.run(["tar", "-C", str(ROOT), *excluded, "-cf", "-", "."], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-C", str(root), "-xf", "-"], input=pack.stdout, check=True)
    (root / ".gitignore").write_text("dist/\n")
    git(root, "init", "--quiet", "--initial-branch", "main")
    git(root, "config", "user.name", "Test")
    git(root, "config", "user.email", "test@example.com")
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {fxminify.__version__}, unreleased\n\n{NOTES}")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "All")
    return root


@pytest.fixture(scope="module")
def built(copy: Path) -> Path:
    """The folder with the sdist and the wheel of a release."""
    said = release.release(copy, datetime.date(2026, 1, 2))
    assert said.startswith(f"Tagged v{fxminify.__version__}. By hand:\n  git push --follow-tags\n")
    return copy / "dist" / fxminify.__version__


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("fxminify-*.whl")
    return found


@pytest.mark.slow
def test_a_release_is_a_commit_and_a_tag_with_its_notes(copy: Path, built: Path) -> None:
    version = fxminify.__version__
    assert {path.name for path in built.iterdir()} == {
        f"fxminify-{version}.tar.gz", f"fxminify-{version}-py3-none-any.whl", "notes.md",
    }  # fmt: skip
    assert f"## {version}, 2026-01-02\n\n{NOTES}" in (copy / "CHANGELOG.md").read_text()
    assert git(copy, "log", "--format=%s") == f"Release {version}\nAll\n"
    assert git(copy, "tag", "--list", "--format=%(contents)", f"v{version}").strip() == NOTES.strip()
    assert git(copy, "status", "--porcelain") == ""


@pytest.mark.slow
def test_the_sdist_holds_what_a_build_needs_and_the_license(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "backends/capture/build_commands.py"} <= names
    assert {str(path.relative_to(ROOT)) for path in MODULES} - names == set()


@pytest.mark.slow
def test_the_wheel_holds_templates_tables_and_migrations_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    templates = {
        f"fxminify/{path.relative_to(ROOT)}"
        for folder in ("repro_templates/templates", "service/http/templates")
        for path in (ROOT / folder).iterdir()
        if path.suffix in (".j2", ".css", ".js")
    }
    modules = {f"fxminify/{p.relative_to(ROOT)}" for p in MODULES}
    assert templates
    wanted = {
        "fxminify/py.typed", "fxminify/store/document/names.json",
        "fxminify/minifier/reporting/report.schema.json", "fxminify/store/index/migrations/env.py",
        "fxminify/store/index/migrations/versions/0011_first_release.py", "fxminify.pth", *templates, *modules,
    }  # fmt: skip
    assert wanted - names == set()
    assert [name for name in names if set(name.split("/")[1:2]) & {"tests", "benchmarks", "docs"}] == []


@pytest.mark.slow
def test_the_wheel_goes_from_the_demo_to_its_script_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """The environment has nothing but the wheel and what it requires; the checkout is not on any path."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), str(wheel)], check=True, timeout=1500)
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(ROOT / "docs" / "demo" / "densenet.py", work)
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}
    minify = str(environment / "bin" / "minify")
    caught = subprocess.run(
        [minify, "catch", "densenet.py"], cwd=work, env=env, capture_output=True, text=True, check=False
    )
    assert caught.returncode == 1, caught.stderr
    listed = subprocess.run([minify, "list", "--json"], cwd=work, env=env, capture_output=True, text=True, check=True)
    (row,) = json.loads(listed.stdout)
    assert (row["state"], row["nodes_after"]) == ("verified", 1)
    shown = subprocess.run([str(python), "repro_1.py"], cwd=work, env=env, capture_output=True, text=True, check=False)
    assert (shown.returncode, "NotImplementedError" in shown.stderr) == (1, True)


@pytest.mark.parametrize(
    ("changelog", "said"),
    [
        ("# Changelog\n", "has no heading '## 1.2, unreleased': add it, or set another version in pyproject.toml"),
        ("## 1.2, unreleased\n\nAll.\n\n## 1.1, 2026-01-01\n\n### Added\n- It.\n", "has no section; the sections"),
        ("## 1.2, unreleased\n\n### Added\n- It.\n\n### News\n- That.\n", "has News; the sections"),
    ],
)  # fmt: skip
def test_a_version_without_notes_is_not_released(changelog: str, said: str) -> None:
    with pytest.raises(release.CannotRelease, match=said.replace(".", r"\.")):
        release.notes(changelog, "1.2")


def test_the_notes_of_a_version_end_with_it() -> None:
    changelog = "# C\n\n## 1.2, unreleased\n\n### Fixed\n- It.\n\n## 1.1, 2026-01-01\n\n### Added\n- That.\n"
    assert release.notes(changelog, "1.2") == "### Fixed\n- It.\n"
    assert "## 1.2, 2026-03-04\n\n### Fixed" in release.dated(changelog, "1.2", datetime.date(2026, 3, 4))


def test_this_version_has_notes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert release.notes(text, fxminify.__version__).startswith("### Added\n")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda root: (root / "more.py").write_text(""), "changes that are not committed"),
        (lambda root: git(root, "tag", "v1.2"), "there is a tag v1.2"),
        (lambda root: (root / "dist" / "1.2").mkdir(parents=True), "is there from an earlier try"),
    ],
    ids=["changes", "tag", "earlier try"],
)
def test_what_is_in_the_way_of_a_release_is_named_and_nothing_is_done(spoil: object, said: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1.2"\n')
    (tmp_path / "CHANGELOG.md").write_text("## 1.2, unreleased\n\n### Added\n- It.\n")
    (tmp_path / ".gitignore").write_text("dist/\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "All")
    assert callable(spoil)
    spoil(tmp_path)
    with pytest.raises(release.CannotRelease, match=said):
        release.release(tmp_path, datetime.date(2026, 1, 2))
    assert "unreleased" in (tmp_path / "CHANGELOG.md").read_text()
    assert git(tmp_path, "log", "--format=%s") == "All\n"


def test_a_build_that_fails_says_why() -> None:
    with pytest.raises(release.CannotRelease, match=r"No module named .*\nno_such_module x ended with exit code 1"):
        release.run("no_such_module", "x")
