"""`minify retest --bisect`: find the two neighbouring versions of a package between which a failure begins or ends.

Each version is installed into a virtual environment of its own, which sees everything else that is installed here. The
environments are kept in the user's cache, so an interrupted search installs nothing twice. `minify retest` runs in
them, so the index has each result with its versions.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import site
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...store.errors import StoreError
from ...store.index import RetestResult
from ...store.text import printable
from ...store.versions import order

#: Seconds that an installation, and a question to an index of packages, may take.
INSTALLING, ASKING = 3600.0, 120.0
#: The file that stands in an environment that is complete.
_DONE = "installed"
#: What a version of a package looks like: nothing that pip takes for an option or a place.
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!_-]{0,80}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")


@dataclass(frozen=True, slots=True)
class VersionAnswer:
    """The result of the case with one version. ``message`` is empty where there is nothing to say."""

    version: str
    result: str
    message: str = ""

    @property
    def fails(self) -> bool | None:
        """Whether the failure shows; None if the answer does not say."""
        return {RetestResult.FAILING: True, RetestResult.FIXED: False}.get(RetestResult(self.result))


@dataclass(frozen=True, slots=True)
class VersionRange:
    """``passes`` and ``fails`` are the nearest versions of which one passes and one fails.

    ``between`` are versions between them that gave no answer.
    """

    package: str
    passes: str
    fails: str
    between: tuple[str, ...] = ()
    answers: tuple[VersionAnswer, ...] = field(default_factory=tuple)

    def text(self) -> str:
        """The answer in one sentence."""
        newer = order(self.fails) > order(self.passes)
        what = f"fails since {self.package} {self.fails}" if newer else f"passes since {self.package} {self.passes}"
        other = f"{self.passes} passes" if newer else f"{self.fails} fails"
        unknown = f"; {', '.join(self.between)} gave no answer" if self.between else ""
        return f"{what} ({other}{unknown})"

    def to_json(self) -> dict[str, Any]:
        answers = [{"version": a.version, "result": a.result, "message": a.message} for a in self.answers]
        return {
            "package": self.package, "passes": self.passes, "fails": self.fails, "between": list(self.between),
            "answers": answers, "text": self.text(),
        }  # fmt: skip


def search(
    package: str, versions: Sequence[str], good: str, bad: str, ask: Callable[[str], VersionAnswer]
) -> VersionRange:
    """Bisect ``versions`` between ``good``, which passes, and ``bad``, which fails. A version that gives no answer is
    skipped.

    ``ask`` runs the case with a version. Raises `StoreError` if ``good`` does not pass, or ``bad`` does not fail.
    """
    answers: dict[str, VersionAnswer] = {}
    for version, fails in ((good, False), (bad, True)):
        answers[version] = answer = ask(version)
        if answer.fails is not fails:
            wanted = "fail" if fails else "pass"
            why = f": {answer.message}" if answer.message else ""
            raise StoreError(f"the case does not {wanted} with {package} {version}, it is {answer.result}{why}")
    ends = sorted((good, bad), key=order)
    inside = sorted({v for v in versions if order(ends[0]) < order(v) < order(ends[1])}, key=order)
    path = [good, *(inside if ends[0] == good else reversed(inside)), bad]
    low, high = 0, len(path) - 1
    while open_ones := [i for i in range(low + 1, high) if path[i] not in answers]:
        middle = min(open_ones, key=lambda i: abs(2 * i - low - high))
        answers[path[middle]] = answer = ask(path[middle])
        if answer.fails is not None:
            low, high = (low, middle) if answer.fails else (middle, high)
    return VersionRange(package, path[low], path[high], tuple(path[low + 1 : high]), tuple(answers.values()))


@dataclass(frozen=True, slots=True)
class Environments:
    """Virtual environments with versions of one package. ``wheels`` is a folder of wheels or the URL of an index, empty
    for the index that pip uses. ``tell`` is called with what is done."""

    package: str
    wheels: str = ""
    tell: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.package):
            raise StoreError(f"{printable(self.package)} is no name of a package")

    def check(self, version: str) -> str:
        """Return ``version``. Raises `StoreError` if it is something else."""
        if not _VERSION.fullmatch(version):
            raise StoreError(f"{printable(version)} is no version of a package")
        return version

    def versions(self, *, early: bool) -> list[str]:
        """The versions that can be installed, with those before a release if ``early``. Raises `StoreError`."""
        command = ["index", "versions", self.package, *self._from(), *(["--pre"] if early else [])]
        said = self._pip(self._made("base"), command, ASKING)
        found = re.search(r"^Available versions: (.*)$", said, re.MULTILINE)
        return [v.strip() for v in found[1].split(",")] if found else []

    def python(self, version: str) -> Path:
        """The interpreter of the environment with ``version``, which is made if it is missing. Raises `StoreError`."""
        folder = self._made(self.check(version))
        if not (folder / _DONE).exists():
            self.tell(f"installing {self.package} {version}")
            self._see_others(folder)
            self._pip(folder, ["install", *self._from(), f"{self.package}=={version}"], INSTALLING)
            (folder / _DONE).touch()
        return _python(folder)

    def _from(self) -> list[str]:
        if not self.wheels:
            return []
        if "://" in self.wheels:
            return ["--index-url", self.wheels]
        if not Path(self.wheels).is_dir():
            raise StoreError(f"there is no folder {printable(self.wheels)}")
        return ["--find-links", os.path.abspath(self.wheels), "--no-index"]

    def _made(self, name: str) -> Path:
        """The folder of an environment, with an interpreter in it."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        here = hashlib.sha256(f"{sys.prefix}\n{sys.version}\n{self.wheels}".encode()).hexdigest()[:12]
        folder = cache / "fxminify" / "versions" / here / f"{self.package}-{name}"
        if not _python(folder).exists():
            self._run([sys.executable, "-m", "venv", str(folder)], ASKING)
        return folder

    def _see_others(self, folder: Path) -> None:
        """Let an environment see what is installed here, behind its own packages."""
        seen = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
        (packages,) = folder.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({place!r})\n" for place in seen]
        (packages / "of_the_caller.pth").write_text("".join(lines))

    def _pip(self, folder: Path, words: Sequence[str], limit: float) -> str:
        return self._run([str(_python(folder)), "-m", "pip", "--disable-pip-version-check", *words], limit)

    def _run(self, command: Sequence[str], limit: float) -> str:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StoreError(f"{self.package} cannot be installed: {error}") from error
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise StoreError(f"{self.package} cannot be installed: {printable(lines[-1]) if lines else 'pip failed'}")
        return done.stdout


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def find_range(
    db: str,
    id: int,
    environments: Environments,
    good: str,
    bad: str,
    *,
    options: Sequence[str] = (),
    done: Callable[[VersionAnswer], None] = lambda answer: None,
) -> VersionRange:
    """Find the versions of a package between which the case of capture ``id`` begins or ceases to fail.

    ``options`` are given to each `minify retest`. ``done`` is called with each answer as it arrives. Raises
    `StoreError` if ``good`` does not pass, or ``bad`` does not fail, or nothing can be installed.
    """
    good, bad = environments.check(good), environments.check(bad)
    early = any(re.search(r"(dev|a|b|rc)\d", version) for version in (good, bad))
    versions = environments.versions(early=early)

    def ask(version: str) -> VersionAnswer:
        try:
            python = environments.python(version)
        except StoreError as error:
            answer = VersionAnswer(version, RetestResult.CANNOT_RUN, str(error))
        else:
            answer = _retest(python, db, id, version, options)
        done(answer)
        return answer

    return search(environments.package, versions, good, bad, ask)


def _retest(python: Path, db: str, id: int, version: str, options: Sequence[str]) -> VersionAnswer:
    command = [str(python), "-P", "-m", "fxminify", "retest", "--json", *options, "--", db, str(id)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        (row,) = json.loads(done.stdout)
        known = row["result"] in list(RetestResult)
        return VersionAnswer(version, row["result"] if known else RetestResult.CANNOT_RUN, str(row["message"]))
    except (ValueError, KeyError, TypeError):
        said = done.stderr.strip().splitlines()
        message = printable(said[-1]) if said else f"it ended with exit code {done.returncode}"
        return VersionAnswer(version, RetestResult.CANNOT_RUN, message)
