"""Trials with hostile documents and files, in a process of their own: an audit hook cannot be removed.

``python hostile_trials.py documents|files|suites|bombs DB FOLDER SEED COUNT`` prints JSON: how many trials there were,
how they ended, and the problems, each with the seed that repeats it. The hook refuses, and notes, whatever starts a
process, reaches the network, loads native code, writes outside the folder, or executes code that does not lie in an
installed module. Memory and processor time are limited.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import sys
import sysconfig
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any

import mutations
from click.testing import CliRunner

#: Seconds of processor time for one document or one command, and bytes of memory beyond what the process begins with.
MOST_SECONDS, MOST_MEMORY = 20.0, 2 << 30
#: The exit codes that `minify --help` names and that a verb ends with by itself.
EXIT_CODES = (0, 1, 2, 3)
#: Exit codes of ``pytest``: all skipped, an error while collecting (also if the one given file is no index), no tests.
PYTEST_CODES = (0, 2, 4, 5)
#: Every verb that reads, or would run something and asks before that. ``DB`` is the file, ``ID`` a failure in it.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("list", "DB"), ("list", "DB", "--each"), ("list", "DB", "--json"), ("show", "DB", "ID"),
    ("show", "DB", "ID", "--captured", "--details"), ("show", "DB", "ID", "--graph"), ("show", "DB", "ID", "--json"),
    ("history", "DB", "ID"), ("history", "DB", "ID", "--json"), ("history", "DB", "ID", "--step", "1"),
    ("repro", "DB", "ID", "--force"), ("repro", "DB", "ID", "--format", "issue", "--force"),
    ("repro", "DB", "ID", "--format", "pytest", "--force", "--json"),
    ("repro", "DB", "ID", "--format", "notebook", "--force", "-o", "out.ipynb"),
    ("repro", "DB", "ID", "--rename", "--force"), ("report", "DB", "-o", "page.html", "--force"),
    ("report", "DB", "ID", "--what-is-inside", "--force"), ("report", "DB", "ID", "--to", "gh", "--force"),
    ("report", "DB", "ID", "--bundle", "out.zip", "--force"), ("verify", "DB"), ("verify", "DB", "ID", "--json"),
    ("retest", "DB"), ("retest", "DB", "--no-record", "--json"), ("retest", "DB", "--matrix"), ("run", "DB"),
    ("run", "DB", "ID", "--again"), ("run", "DB", "ID", "--from-step", "1"), ("ablate", "DB", "ID"), ("upgrade", "DB"),
    ("export", "DB", "-o", "share.db", "--force"), ("export", "DB", "ID", "-o", "share.db", "--force", "--json"),
    ("tasks", "DB"), ("tasks", "DB", "--json"), ("tokens", "DB"), ("tokens", "DB", "--json"),
    ("tokens", "DB", "--new", "a", "--scope", "read"),
)  # fmt: skip

_STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen",
           "pty.spawn", "os.startfile", "webbrowser.open")  # fmt: skip
_REACHES = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request",
            "ftplib.connect", "http.client.connect", "ctypes.dlopen", "ctypes.dlsym", "code.__new__",
            "sqlite3.enable_load_extension", "sqlite3.load_extension")  # fmt: skip
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate",
            "os.chown")  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class NotAllowed(BaseException):
    """A forbidden action of a trial. Handlers for `Exception` do not catch it."""


class Watch:
    """The audit hook. ``seen`` has what was done and may not be."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        self.homes = {
            os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")
        }
        import fxminify

        self.installed = (*self.homes, os.path.realpath(os.path.dirname(fxminify.__file__ or "")))
        self.seen: list[str] = []
        self.on = False
        sys.addaudithook(self.hook)

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        self.on = False
        try:
            why = self.judge(event, args)
        finally:
            self.on = True
        if why:
            self.seen.append(why)
            raise NotAllowed(why)

    def judge(self, event: str, args: tuple[Any, ...]) -> str:
        if event in _STARTS or event in _REACHES:
            return f"{event} {args!r:.200}"
        if event in _CHANGES and not self.inside(args[0]):
            return f"{event} {args!r:.200}"
        if event == "open" and type(args[2]) is int and args[2] & _WRITES and not self.inside(args[0]):
            return f"open to write: {args[0]!r}"
        if event == "import" and str(args[0]).partition(".")[0] in (mutations.STRANGER, "pickle_of_a_stranger"):
            return f"import {args[0]}"
        if event == "exec" and isinstance(args[0], CodeType) and not self.is_installed(args[0].co_filename):
            return f"exec of {args[0].co_filename}: {args[0].co_names!r:.200}"
        return ""

    def inside(self, path: object) -> bool:
        if isinstance(path, int) or os.fspath(path) == os.devnull:  # type: ignore[call-overload]
            return True
        return (os.path.realpath(os.fsdecode(path)) + os.sep).startswith(self.folder + os.sep)  # type: ignore[arg-type]

    def is_installed(self, filename: str) -> bool:
        """Whether code lies in an installed module, or a library other than ours made it."""
        if filename in GENERATED:
            caller = sys._getframe(3).f_code.co_filename  # of is_installed, judge and hook
            return os.path.realpath(caller).startswith(tuple(home + os.sep for home in self.homes))
        if filename.startswith("<frozen "):
            return True
        return os.path.realpath(filename).startswith(tuple(home + os.sep for home in self.installed))


#: The file names under which libraries execute what they generate themselves: SQLAlchemy and dataclasses, Jinja.
GENERATED = ("<string>", "<template>")


@contextmanager
def limited(seconds: float = MOST_SECONDS) -> Iterator[None]:
    """Raise `NotAllowed` where the block takes so many seconds of processor time."""

    def late(number: int, frame: object) -> None:
        raise NotAllowed(f"more than {seconds} s of processor time")

    signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def documents(db: Path, watch: Watch, seed: int, count: int) -> dict[str, Any]:
    """Read ``count`` changed documents: each is a case, or refused with a sentence. A case is printed, too."""
    from fxminify.backends.provenance.spec import InvalidSpec
    from fxminify.minifier.consent import question
    from fxminify.minifier.reducer import history
    from fxminify.repro_templates.report.picture import picture
    from fxminify.repro_templates.report.text_graph import text_graph
    from fxminify.repro_templates.source.expressions import Unprintable
    from fxminify.repro_templates.source.function import print_graph
    from fxminify.store.document.case import to_json
    from fxminify.store.document.decode import InvalidDocument, parse, validate

    base = [doc for _, doc in mutations.documents(db)]

    def read(text: bytes) -> str:
        try:
            case = validate(parse(text))
        except InvalidDocument as refused:
            said = str(refused)
            if not said.isprintable() or len(said) > 600:
                raise ValueError(f"not a short sentence: {said!r:.300}") from refused
            return "refused"
        if validate(to_json(case)) != case:
            raise ValueError("what was accepted does not read back the same")
        try:
            print_graph(case)
            question(1, case)
        except (Unprintable, InvalidSpec) as refused:
            if not str(refused):
                raise ValueError("no sentence") from refused
        history.describe(case)
        text_graph(case.graph)
        picture(case.graph, label="x")
        return "accepted"

    return _trials(lambda draw: mutations.text(draw, draw.choice(base)), read, watch, seed, count)


def files(db: Path, watch: Watch, seed: int, count: int) -> dict[str, Any]:
    """Change the file and run commands on it, until there were ``count`` commands."""
    from fxminify.cli import main

    runner = CliRunner()
    place = Path("repro.db")
    ended: Counter[str] = Counter()
    problems: list[str] = []
    done = number = 0
    while done < count:
        draw = Random(f"{seed}/{number}")
        number += 1
        for left in Path().glob("repro.db*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        shutil.copyfile(db, place)
        what = mutations.database(draw, place)
        ended[what] += 1
        for command in draw.sample(COMMANDS, 6):
            arguments = [{"DB": str(place), "ID": str(draw.choice((1, 1, 2, 3, 4)))}.get(a, a) for a in command]
            done += 1
            why, code = _command(runner, main, arguments, watch)
            ended[f"exit code {code}"] += 1
            if why:
                problems.append(f"seed {seed}/{number - 1} ({what}): minify {' '.join(arguments)}: {why}")
    return {"trials": done, "ended": ended, "problems": problems}


def bombs(db: Path, watch: Watch, seed: int, count: int) -> dict[str, Any]:
    """Run commands on the last capture of the file, which is large, ``count`` of them: all of `COMMANDS`, if it can."""
    from fxminify.cli import main
    from fxminify.store.index import Index

    with Index.open(str(db), readonly=True) as index:
        large = index.captures.find()[-1].id
    ended: Counter[str] = Counter()
    problems: list[str] = []
    chosen = Random(seed).sample(COMMANDS, min(count, len(COMMANDS)))
    for command in chosen:
        shutil.copyfile(db, "repro.db")
        arguments = [{"DB": "repro.db", "ID": str(large)}.get(a, a) for a in command]
        why, code = _command(CliRunner(), main, arguments, watch)
        ended[f"exit code {code}"] += 1
        if why:
            problems.append(f"minify {' '.join(arguments)}: {why}")
    return {"trials": len(chosen), "ended": ended, "problems": problems}


def suites(db: Path, watch: Watch, seed: int, count: int) -> dict[str, Any]:
    """Change the file and run ``pytest repro.db`` on it, ``count`` times. Nothing was trusted, so nothing may run."""
    import pytest

    ended: Counter[str] = Counter()
    problems: list[str] = []
    for number in range(count + 1):  # the first is the file as it is
        draw = Random(f"{seed}/{number}")
        place = Path(f"suite{number}.db")
        shutil.copyfile(db, place)
        what = mutations.database(draw, place) if number else ""
        watch.seen.clear()
        out = io.StringIO()
        try:
            with limited(), redirect_stdout(out), redirect_stderr(out):
                watch.on = number > 0
                code = int(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs", str(place)]))
        except NotAllowed as refused:
            problems.append(f"seed {seed}/{number} ({what}): {refused}")
            continue
        finally:
            watch.on = False
        ended[f"exit code {code}"] += 1
        said = out.getvalue()
        wrong = code not in PYTEST_CODES or "INTERNALERROR" in said or "Traceback" in said or " passed" in said
        if wrong or watch.seen:
            problems.append(f"seed {seed}/{number} ({what}): ended with {code}, {watch.seen}: {said[-1500:]}")
        place.unlink()
    return {"trials": count, "ended": ended, "problems": problems}


def _command(runner: CliRunner, main: Any, arguments: Sequence[str], watch: Watch) -> tuple[str, object]:
    """Return the fault in how the command ended, or an empty text, and its exit code."""
    watch.seen.clear()
    try:
        with limited(3 * MOST_SECONDS if "--bundle" in arguments else MOST_SECONDS):  # which has every format
            watch.on = True
            result = runner.invoke(main, list(arguments), prog_name="minify")
    except NotAllowed as refused:
        return str(refused), None
    finally:
        watch.on = False
    if watch.seen:
        return watch.seen[0], result.exit_code
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return "".join(traceback.format_exception(result.exception))[-1500:], result.exit_code
    if result.exit_code not in EXIT_CODES or "Traceback" in result.stderr:
        return f"ended with {result.exit_code}: {result.output[-300:]}", result.exit_code
    if odd := [c for c in result.output if not c.isprintable() and c not in "\n\t"]:
        return f"printed {odd[:3]!r}", result.exit_code
    said = result.stderr.strip().splitlines()
    if result.exit_code == 2 and not (said and said[-1].startswith("Error: ")) and not said[-1].startswith("Usage"):
        return f"no sentence: {said[-2:]!r}", result.exit_code
    return "", result.exit_code


def _trials(
    make: Callable[[Random], bytes], work: Callable[[bytes], str], watch: Watch, seed: int, count: int
) -> dict[str, Any]:
    ended: Counter[str] = Counter()
    problems = []
    for number in range(count):
        watch.seen.clear()
        text = make(Random(f"{seed}/{number}"))
        try:
            with limited():
                watch.on = True
                ended[work(text)] += 1
        except (Exception, NotAllowed) as error:  # noqa: BLE001  whatever it is, it is the answer
            watch.on = False
            problems.append(f"seed {seed}/{number}: {''.join(traceback.format_exception(error))[-1500:]}")
        finally:
            watch.on = False
    return {"trials": count, "ended": ended, "problems": problems}


def warm_up(db: Path) -> None:
    """Run every command on the file as it is, so that all modules are loaded."""
    from fxminify.cli import main

    for command in COMMANDS:
        shutil.copyfile(db, "repro.db")
        done = CliRunner().invoke(main, [{"DB": "repro.db", "ID": "1"}.get(a, a) for a in command], prog_name="minify")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if done.exit_code == 2 and command[0] not in ("upgrade", "ablate"):
            raise RuntimeError(f"{command}: {done.output}")


def trial() -> None:
    kind, given, place, seed, count = sys.argv[1:]
    db, folder = Path(given).resolve(), Path(place).resolve()
    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder), "HOME": str(folder)}
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    (folder / f"{mutations.STRANGER}.py").write_text("open('mark', 'w').close()\nrun = print\n")
    warm_up(db)
    bound_memory()
    began = time.process_time()
    kinds = {"documents": documents, "files": files, "suites": suites, "bombs": bombs}
    found = kinds[kind](db, Watch(folder), int(seed), int(count))
    if (folder / "mark").exists():
        found["problems"].append("the module of the stranger was imported")
    print(json.dumps({**found, "seconds": round(time.process_time() - began, 1), "torch": "torch" in sys.modules}))


if __name__ == "__main__":
    trial()
