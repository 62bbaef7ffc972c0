"""Release the version of `pyproject.toml`: build it, check it, date it in the changelog and tag it.

``make release`` runs it. Nothing leaves the machine: what is to be pushed and uploaded is printed at the end. A fault
found on the way ends it before anything is committed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: The sections of a version in the changelog.
SECTIONS = frozenset({"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"})


class CannotRelease(SystemExit):
    """Why there is no release, with what to do."""


def notes(changelog: str, version: str) -> str:
    """What the changelog has of an unreleased version, without its heading. Raises `CannotRelease`."""
    heading = f"## {version}, unreleased"
    _, found, after = changelog.partition(f"{heading}\n")
    if not found:
        raise CannotRelease(
            f"CHANGELOG.md has no heading {heading!r}: add it, or set another version in pyproject.toml"
        )
    text = re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0].strip()
    sections = re.findall(r"^### (.+)$", text, flags=re.MULTILINE)
    if not sections or (unknown := set(sections) - SECTIONS):
        wanted = ", ".join(sorted(SECTIONS))
        what = ", ".join(sorted(unknown)) if sections else "no section"
        raise CannotRelease(f"{heading} of CHANGELOG.md has {what}; the sections are {wanted}")
    return f"{text}\n"


def dated(changelog: str, version: str, day: datetime.date) -> str:
    """The changelog with the day of the release."""
    return changelog.replace(f"## {version}, unreleased\n", f"## {version}, {day.isoformat()}\n")


def git(root: Path, *args: str) -> bytes:
    """What git prints in ``root``. Raises `CannotRelease` with what it says of an error."""
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise CannotRelease(f"git {args[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def build(root: Path, target: Path) -> list[Path]:
    """Build sdist and wheel of the last commit into ``target`` and check them. Raises `CannotRelease`."""
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(fileobj=BytesIO(git(root, "archive", "HEAD"))) as archive:
            archive.extractall(name, filter="data")
        run("build", "--outdir", str(target), name)
    made = sorted(target.glob("*"))
    run("twine", "check", "--strict", *map(str, made))
    return made


def run(module: str, *args: str) -> None:
    """Run a module of this Python. Raises `CannotRelease` with the end of what it printed."""
    command = [sys.executable, "-m", module, *args]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise CannotRelease(
            f"{done.stdout[-2000:].rstrip()}\n{module} {args[0]} ended with exit code {done.returncode}"
        )


def release(root: Path, day: datetime.date) -> str:
    """Release what ``root`` has. Returns the lines that say what is to be done by hand. Raises `CannotRelease`."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changelog = root / "CHANGELOG.md"
    text = notes(changelog.read_text(encoding="utf-8"), version)
    if git(root, "status", "--porcelain").strip():
        raise CannotRelease("there are changes that are not committed: commit or stash them")
    if git(root, "tag", "--list", f"v{version}").strip():
        raise CannotRelease(f"there is a tag v{version}: set another version in pyproject.toml")
    target = root / "dist" / version
    if target.exists():
        raise CannotRelease(f"{target} is there from an earlier try: remove it")
    made = build(root, target)
    changelog.write_text(dated(changelog.read_text(encoding="utf-8"), version, day), encoding="utf-8")
    (target / "notes.md").write_text(text, encoding="utf-8")
    git(root, "commit", "--quiet", "--message", f"Release {version}", "CHANGELOG.md")
    git(root, "tag", "--annotate", f"v{version}", "--cleanup=verbatim", "--file", str(target / "notes.md"))
    python, *files = (os.path.relpath(path, root) for path in (Path(sys.executable), *made))
    by_hand = ("git push --follow-tags", f"{python} -m twine upload {' '.join(files)}")
    return "".join(f"{line}\n" for line in (f"Tagged v{version}. By hand:", *(f"  {line}" for line in by_hand)))


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    print(release(ROOT, datetime.datetime.now(datetime.UTC).date()), end="")


if __name__ == "__main__":
    main()
