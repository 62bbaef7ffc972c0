"""The parent of `minify capture`: the program as if run alone, and what is captured of its death."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from indexes import captures

from fxminify.store.index import Index

FAILURES = Path(__file__).parents[2] / "failures"
CAPTURE = """
import sys
from fxminify.backends.capture import supervise
from fxminify.backends.capture.settings import Settings
timeout, module, check = float(sys.argv[1]) or None, sys.argv[2] == "m", sys.argv[3] == "c"
sys.exit(supervise.run("repro.db", sys.argv[4:], Settings(check), module=module, timeout=timeout))
"""


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text("import torch\ntorch.set_num_threads(1)\n" + text if "torch" in text else text)
    return name


def command(*argv: str, timeout: float = 0, module: bool = False, check: bool = False) -> list[str]:
    asked = [str(timeout), "m" if module else "-", "c" if check else "-"]
    return [sys.executable, "-c", CAPTURE, *asked, *argv]


def capture(
    folder: Path, *argv: str, timeout: float = 0, module: bool = False, check: bool = False
) -> subprocess.CompletedProcess[str]:
    asked = command(*argv, timeout=timeout, module=module, check=check)
    return subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False)


NO_GRAPH = "nothing captured: no graph reached a backend of torch.compile"
ELSEWHERE = "outside every watched compilation and call"
SEGFAULT = """
import os, signal
def backend(gm, inputs):
    if any("relu" in str(n.target) for n in gm.graph.nodes):
        os.kill(os.getpid(), signal.SIGSEGV)
    return gm.forward
torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
torch.compile(lambda x: torch.relu(x) + 1, backend=backend)(torch.ones(3))
"""


def test_a_crash_while_compiling(tmp_path: Path) -> None:
    done = capture(tmp_path, write(tmp_path, "program.py", SEGFAULT))
    assert done.returncode == 128 + signal.SIGSEGV
    assert done.stderr == "minify: captured 1 failure (1 crash); next: minify run repro.db\n"
    [row] = captures(tmp_path / "repro.db")
    assert row.failure is not None
    assert (row.kind, row.phase, row.failure.signal, row.nodes_before) == ("crash", "compile", signal.SIGSEGV, 2)
    assert (row.failure.frames[-1].file, row.failure.frames[-1].function) == ("program.py", "backend")
    assert row.provenance["frame"] == "program.py:10 <lambda>"
    assert sorted(p.name for p in tmp_path.iterdir() if "inflight" in p.name) == []


def test_a_crash_in_a_later_call(tmp_path: Path) -> None:
    program = """
import os
def backend(gm, inputs):
    def run(x):
        if x[0] == 2:
            os.abort()
        return gm(x)
    return run
compiled = torch.compile(lambda x: x + 1, backend=backend)
compiled(torch.ones(3))
compiled(torch.full((3,), 2.0))
"""
    done = capture(tmp_path, write(tmp_path, "program.py", program))
    assert done.returncode == 128 + signal.SIGABRT
    [row] = captures(tmp_path / "repro.db")
    assert (row.kind, row.phase) == ("crash", "forward")
    from fxminify.store.live.build import build

    with Index.open(str(tmp_path / "repro.db")) as index:
        case = index.captures.case(1)
        assert build(case, index.blobs.view(case.storages))[1][0].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.slow
def test_a_crash_in_backward(tmp_path: Path) -> None:
    program = """
import os
class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): os.abort()
compiled = torch.compile(lambda x: x * 2, backend=lambda gm, inputs: lambda x: (Backward.apply(x),))
compiled(torch.ones(3, requires_grad=True)).sum().backward()
"""
    done = capture(tmp_path, write(tmp_path, "program.py", program))
    assert done.returncode == 128 + signal.SIGABRT
    [row] = captures(tmp_path / "repro.db")
    assert (row.kind, row.phase) == ("crash", "backward")
    with Index.open(str(tmp_path / "repro.db")) as index:
        assert index.captures.case(1).backward


def test_leaving_in_the_middle_of_a_call(tmp_path: Path) -> None:
    program = "import os\ntorch.compile(lambda x: x + 1, backend=lambda gm, inputs: os._exit(3))(torch.ones(3))\n"
    done = capture(tmp_path, write(tmp_path, "program.py", program))
    assert done.returncode == 3
    assert [(row.kind, row.failure.type) for row in captures(tmp_path / "repro.db") if row.failure] == [
        ("crash", "exit 3")
    ]


def test_a_crash_of_eager_is_not_the_backends(tmp_path: Path) -> None:
    program = """
import os
@torch.library.custom_op("own::die", mutates_args=())
def die(x: torch.Tensor) -> torch.Tensor:
    os.abort()
@die.register_fake
def _(x): return torch.empty_like(x)
torch.compile(lambda x: die(x), backend="eager")(torch.ones(3))
"""
    done = capture(tmp_path, write(tmp_path, "program.py", program), check=True)
    assert done.returncode == 128 + signal.SIGABRT
    assert "a graph ran in eager: nothing to capture" in done.stderr
    assert captures(tmp_path / "repro.db") == []


HANG = """
import subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(other.pid, flush=True)
def backend(gm, inputs):
    def run(*args):
        time.sleep(600)
    return run
torch.compile(lambda x: torch.relu(x), backend=backend)(torch.ones(3))
"""


@pytest.mark.slow
def test_a_hang_is_ended_with_all_it_started(tmp_path: Path) -> None:
    done = capture(tmp_path, write(tmp_path, "program.py", HANG), timeout=5)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == "minify: captured 1 failure (1 hang); next: minify run repro.db\n"
    [row] = captures(tmp_path / "repro.db")
    assert (row.kind, row.phase) == ("hang", "forward")
    assert (
        not Path(f"/proc/{done.stdout.strip()}/cmdline").exists()
        or not Path(f"/proc/{done.stdout.strip()}/cmdline").read_bytes()
    )


@pytest.mark.slow
def test_what_a_person_ends_after_a_while_may_be_a_hang(tmp_path: Path) -> None:
    write(tmp_path, "program.py", HANG)
    process = subprocess.Popen(
        command("program.py"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    other = int(process.stdout.readline())
    time.sleep(25)
    process.send_signal(signal.SIGINT)
    process.wait(30)
    os.kill(other, signal.SIGKILL)  # it holds the pipes
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert re.fullmatch(
        r"minify: interrupted in a forward call after \d+ s; if it hangs, --timeout 10 captures that as a failure",
        err.splitlines()[-1],
    )
    assert captures(tmp_path / "repro.db") == []


@pytest.mark.slow
def test_a_slow_healthy_program_is_no_hang(tmp_path: Path) -> None:
    program = """
import time
compiled = torch.compile(lambda x: x + 1, backend="eager")
for _ in range(4):
    compiled(torch.ones(3))
    time.sleep(1)
"""
    done = capture(tmp_path, write(tmp_path, "program.py", program), timeout=2)
    said = "minify: 1 graph compiled by eager, none failed; compared: no (--check compares calls with eager)\n"
    assert (done.returncode, done.stderr) == (0, said)
    assert captures(tmp_path / "repro.db") == []


@pytest.mark.slow
def test_a_healthy_compilation_on_a_busy_machine_is_no_hang(tmp_path: Path) -> None:
    """It takes a second of a processor that six others want, too."""
    program = """
import os, subprocess, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
def backend(gm, inputs):
    began, end = time.monotonic(), time.process_time() + 1
    while time.process_time() < end:
        pass
    print(time.monotonic() - began)
    return gm.forward
try:
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
finally:
    for other in others:
        other.kill()
"""
    done = capture(tmp_path, write(tmp_path, "program.py", program), timeout=2)
    said = "minify: 1 graph compiled by backend, none failed; compared: no (--check compares calls with eager)\n"
    assert (done.returncode, done.stderr) == (0, said)
    assert float(done.stdout) > 3, "it was not that busy"
    assert captures(tmp_path / "repro.db") == []


PROGRAM = """
import atexit, sys
atexit.register(lambda: print("at exit"))
print(sys.argv, sys.path[0], __name__, __file__, __spec__ and __spec__.name)
print(sys.modules["__main__"].__dict__ is globals())
print([p for p in sys.path if "inflight" in p], "torch" in sys.modules)
def deep():
    raise ValueError("own")
if sys.argv[1] == "raise":
    deep()
if sys.argv[1] == "exit":
    sys.exit(7)
if sys.argv[1] == "text":
    sys.exit("a message")
print(sys.stdin.read())
"""


@pytest.mark.parametrize("argument", ["raise", "exit", "text", "read"])
@pytest.mark.parametrize("module", [False, True])
def test_the_program_runs_as_if_alone(tmp_path: Path, argument: str, module: bool) -> None:
    write(tmp_path, "program.py", PROGRAM.replace('"torch" in', '"to" + "rch" in'))
    target = "program" if module else "program.py"
    alone = [sys.executable, *(["-m"] if module else []), target, argument]
    expected = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, input="typed", check=False)
    asked = command(target, argument, module=module)
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, input="typed", check=False)
    assert (done.returncode, done.stdout) == (expected.returncode, expected.stdout)
    ended = f"; the program ended with ValueError {ELSEWHERE}" if argument == "raise" else ""
    assert done.stderr == f"{expected.stderr}minify: {NO_GRAPH}{ended}\n"


def test_the_program_sees_no_variable_of_ours(tmp_path: Path) -> None:
    write(tmp_path, "program.py", "import os\nprint(sorted(k for k, v in os.environ.items() if 'inflight' in v))\n")
    assert capture(tmp_path, "program.py").stdout == "['PYTHONPATH']\n"


JOURNAL_GONE = """
import glob, shutil
def backend(gm, inputs):
    return gm.forward
def fails(gm, inputs):
    raise RuntimeError("no kernel")
for folder in glob.glob("repro.db.inflight-*"):
    {how}
x = torch.ones(3, requires_grad=True)
torch.compile(lambda x: torch.relu(x) + 1, backend=backend)(x).sum().backward()
print("healthy")
try:
    torch.compile(lambda x: torch.sin(x), backend=fails)(x)
except Exception as exc:
    print(type(exc).__name__)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    ["shutil.rmtree(folder)", "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
     "resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))"],
)  # fmt: skip
def test_a_program_does_not_notice_that_nothing_can_be_noted(tmp_path: Path, how: str) -> None:
    write(tmp_path, "program.py", JOURNAL_GONE.replace("{how}", how))
    done = capture(tmp_path, "program.py", check=True)
    assert (done.returncode, done.stdout) == (0, "healthy\nBackendCompilerFailed\n")
    assert done.stderr.count("fxminify cannot note what runs") == 1
    assert "Traceback" not in done.stderr
    said = "not all that happened could be noted" if "rmtree" in how else "1 failure could not be stored: RuntimeError"
    assert done.stderr.splitlines()[-1].startswith(f"minify: {said}")
    if "rmtree" in how:  # what a backend raises is captured without a journal
        assert [(row.kind, row.backend) for row in captures(tmp_path / "repro.db")] == [("compile_error", "fails")]


#: Runs a command in an empty directory $0 on a disk of 60 kB, of which $1 are used.
SMALL = """
mount -t tmpfs -o size=60k none "$0" && cp program.py "$0" && cd "$0" &&
head -c "$1" /dev/zero > used && shift && exec "$@"
"""
TWO_FAIL = """
def fails(gm, inputs):
    raise RuntimeError(f"no kernel for {[n.name for n in gm.graph.nodes][1]}")
for function in (torch.sin, torch.cos, torch.sin):
    try:
        torch.compile(lambda x: function(x), backend=fails)(torch.ones(3))
    except Exception as exc:
        print(type(exc).__name__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("used", [12_000, 24_000])
def test_a_failure_that_a_full_disk_cannot_hold_is_said_with_the_reason(tmp_path: Path, used: int) -> None:
    write(tmp_path, "program.py", TWO_FAIL)
    (tmp_path / "disk").mkdir()
    small = ["unshare", "-Urm", "sh", "-c", SMALL, str(tmp_path / "disk"), str(used)]
    done = subprocess.run([*small, *command("program.py")], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "BackendCompilerFailed\n" * 3
    why = (
        f"no space left to write {tmp_path / 'disk' / 'repro.db'}: nothing was stored half; "
        "free some space and run the same command again"
    )
    assert done.stderr.splitlines()[-1] == (
        f"minify: 2 failures could not be stored: RuntimeError: no kernel for sin: {why} (and 1 other)"
    )


FULL = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
from fxminify.backends.capture import supervise
from fxminify.backends.capture.settings import Settings
supervise._environment = lambda directory: 1 / 0
sys.exit(supervise.run("repro.db", sys.argv[1:], Settings()))
"""


def test_the_program_runs_where_nothing_can_be_written(tmp_path: Path) -> None:
    write(tmp_path, "program.py", "import sys\nprint('ran')\nsys.exit(7)\n")
    asked = [sys.executable, "-c", FULL, "program.py"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "ran\n")
    assert done.stderr.startswith("minify: nothing can be captured (")
    assert done.stderr.endswith("; the program runs without it\n")
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_an_end_that_cannot_be_stored_is_said_and_the_exit_code_is_the_programs(tmp_path: Path) -> None:
    spoilt = SEGFAULT.replace("os.kill(", "open('repro.db', 'w').write('x' * 200); os.kill(")
    write(tmp_path, "program.py", spoilt)
    done = capture(tmp_path, "program.py")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "minify: the end of the program could not be stored: repro.db is not a file of fxminify" in done.stderr


def test_the_programs_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('customized')\n")
    write(tmp_path, "program.py", "print('ran')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    asked = command("program.py")
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.stderr) == ("customized\ncustomized\nran\n", f"minify: {NO_GRAPH}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on(tmp_path: Path, number: signal.Signals) -> None:
    program = """
import time
print("ready", flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""
    write(tmp_path, "program.py", program)
    process = subprocess.Popen(
        command("program.py"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert out == ("interrupted\n" if number == signal.SIGINT else "")
    assert captures(tmp_path / "repro.db") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_so(tmp_path: Path, number: signal.Signals) -> None:
    """As under ``nohup``."""
    program = f"import signal\nprint(signal.getsignal({int(number)}).name, flush=True)\ninput()\n"
    write(tmp_path, "program.py", program)
    process = subprocess.Popen(
        ["sh", "-c", f'trap "" {number.name[3:]}; exec "$@"', "sh", *command("program.py")], cwd=tmp_path,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "SIG_IGN\n"
    process.send_signal(number)
    out, errors = process.communicate("\n", timeout=60)
    assert (process.returncode, out, errors) == (0, "", f"minify: {NO_GRAPH}\n")


@pytest.mark.slow
def test_exceptions_and_divergences_are_counted_in_the_line_at_the_end(tmp_path: Path) -> None:
    program = """
def broken(gm, inputs): raise ValueError("no")
def swapping(gm, inputs): return lambda x: (torch.cos(x),)
torch.compile(lambda x: torch.sin(x), backend=swapping)(torch.ones(3))
try:
    torch.compile(lambda x: x + 1, backend=broken)(torch.ones(3))
except Exception:
    pass
torch.compile(lambda x: torch.nn.functional.dropout(x), backend="aot_eager")(torch.ones(3))
"""
    done = capture(tmp_path, write(tmp_path, "program.py", program), check=True)
    assert done.returncode == 0
    assert done.stderr == ("minify: captured 2 failures (1 compile error, 1 divergence); next: minify run repro.db\n")


@pytest.mark.slow
def test_processes_the_program_starts_are_captured_too(tmp_path: Path) -> None:
    write(tmp_path, "inner.py", SEGFAULT)
    program = """
import multiprocessing, os, subprocess, sys
def broken(gm, inputs): raise ValueError("no")
def work(number):
    try:
        torch.compile(lambda x: x + number, backend=broken)(torch.ones(3))
    except Exception:
        pass
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=work, args=(1 if method == "fork" else 2,))
        process.start()
        process.join()
    sys.exit(1 if subprocess.call([sys.executable, "inner.py"]) else 0)
"""
    done = capture(tmp_path, write(tmp_path, "program.py", program))
    assert done.returncode == 1
    kinds = sorted((row.kind, row.provenance["program"]) for row in captures(tmp_path / "repro.db"))
    assert kinds == [("compile_error", "program.py"), ("compile_error", "program.py"), ("crash", "inner.py")]


@pytest.mark.slow
def test_real_crash(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    done = capture(tmp_path, str(FAILURES / "drive.py"), "037_ort_floor_divide_intmin")
    assert done.returncode == 128 + signal.SIGFPE
    assert [(row.kind, row.phase, row.backend) for row in captures(tmp_path / "repro.db")] == [
        ("crash", "forward", "ort_export")
    ]


@pytest.mark.slow
def test_real_hang(tmp_path: Path) -> None:
    done = capture(tmp_path, str(FAILURES / "drive.py"), "012_reshape_t_chain_hang", timeout=15)
    assert done.returncode == 128 + signal.SIGTERM
    assert [(row.kind, row.phase, row.backend) for row in captures(tmp_path / "repro.db")] == [
        ("hang", "compile", "inductor")
    ]


OUTSIDE = """
import os
def crash():
    os.abort()
{}
crash()
"""


def test_a_crash_outside_every_graph_is_said(tmp_path: Path) -> None:
    done = capture(tmp_path, write(tmp_path, "program.py", OUTSIDE.format("")))
    assert done.returncode == 128 + signal.SIGABRT
    said = "minify: the program died of SIGABRT in crash (program.py:4), outside every compilation and compiled call"
    assert done.stderr == f"{said}; nothing captured\n"
    assert captures(tmp_path / "repro.db") == []


@pytest.mark.slow
def test_a_crash_outside_leaves_a_row_of_the_last_graph(tmp_path: Path) -> None:
    compiled = 'import torch; torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))'
    done = capture(tmp_path, write(tmp_path, "program.py", OUTSIDE.format(compiled)))
    assert done.returncode == 128 + signal.SIGABRT
    first, second = done.stderr.splitlines()
    outside = "the program died of SIGABRT in crash (program.py:6), outside every compilation and compiled call"
    assert (
        first == f"minify: {outside}; its last compiled graph is stored, but nothing shows that this graph is the cause"
    )
    assert second == "minify: captured 1 failure (1 crash); next: minify run repro.db"
    [row] = captures(tmp_path / "repro.db")
    assert (row.kind, row.state, row.backend, row.nodes_before) == ("crash", "blocked", "eager", 1)
    assert row.reason == f"{outside}; this is its last compiled graph"


def test_a_signal_of_a_person_is_no_crash(tmp_path: Path) -> None:
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
    done = capture(tmp_path, write(tmp_path, "program.py", program))
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


HEALTHY = """
for backend in ("eager", "aot_eager"):
    for number in range(2):
        torch.compile(lambda x: x + number, backend=backend, dynamic=False)(torch.ones(3))
"""
RAISES = """
import subprocess, sys
compiled = torch.compile(torch.sin, backend="eager")
try:
    sys.exit(compiled(torch.ones(3)).numel())
except SystemExit:
    subprocess.run([sys.executable, "-c", "raise OSError"], stderr=subprocess.DEVNULL)
raise ValueError(3)
"""
NOT_COMPARED = "compared: no (--check compares calls with eager)"
GRAPHS = "2 graphs compiled by aot_eager, 2 graphs compiled by eager, none failed"


@pytest.mark.parametrize(
    ("program", "options", "said"),
    [
        ("print('done')\n", [], NO_GRAPH),
        (HEALTHY, [], f"{GRAPHS}; {NOT_COMPARED}"),
        pytest.param(HEALTHY, ["--check"], f"{GRAPHS}; compared: 4 calls", marks=pytest.mark.slow),
    ],
)
def test_a_person_is_told_what_was_watched(tmp_path: Path, program: str, options: list[str], said: str) -> None:
    write(tmp_path, "program.py", program)
    command = [sys.executable, "-m", "fxminify", "capture", *options, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == f"minify: {said}\n"
    assert [p.name for p in tmp_path.iterdir() if p.name != "__pycache__"] == ["program.py"]


DRAWS_OTHER_NUMBERS = """
def backend(gm, example_inputs):
    def run(*args):
        torch.rand(1)
        return gm.forward(*args)
    return run
dropout = torch.nn.functional.dropout
for function in (dropout, lambda x: dropout(x) + 1, lambda x: (x + 1, dropout(x))):
    torch.compile(function, backend=backend)(torch.ones(64))
"""


@pytest.mark.slow
def test_a_person_is_told_what_could_not_be_judged(tmp_path: Path) -> None:
    done = capture(tmp_path, write(tmp_path, "program.py", DRAWS_OTHER_NUMBERS), check=True)
    why = "output 1: differs, but it is random, and backends may draw other numbers"
    told = [line for line in done.stderr.splitlines() if line.startswith("minify: ")]
    assert told == [
        f"minify: not all could be judged against eager: {why} (and 1 other reason)",
        "minify: 3 graphs compiled by backend, none failed; compared: 0 calls",
    ]


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (RAISES, 1, f"1 graph compiled by eager, none failed; {NOT_COMPARED}; {{}} ValueError {ELSEWHERE}"),
        ("raise KeyError('x')\n", 1, f"{NO_GRAPH}; {{}} KeyError {ELSEWHERE}"),
        ("raise SystemExit(3)\n", 3, NO_GRAPH),
    ],
)
def test_a_person_is_told_of_an_exception_of_the_program_itself(
    tmp_path: Path, program: str, code: int, said: str
) -> None:
    """Not of one that it caught, nor of one in a process that it started."""
    done = capture(tmp_path, write(tmp_path, "program.py", program))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, f"minify: {said.format('the program ended with')}")
    assert not (tmp_path / "repro.db").exists()
