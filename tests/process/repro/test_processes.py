"""Scripts in processes of their own: forked runs look like fresh ones from inside, and end like them."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from alive import alive

from fxminify.repro_templates.processes import Processes, Script, split
from fxminify.repro_templates.verify import Verification, verify
from fxminify.store.failure import FailureKind

#: All that a script can see of its process, as JSON in a file. What a fork of OpenBLAS ends is not among it: numpy
#: starts threads again when it needs them.
STATE = '''
"""A docstring."""

import sys
import torch
import beside

def state():
    import atexit, faulthandler, gc, locale, logging, resource, signal, tempfile, threading, warnings
    def proc(name):
        with open(f"/proc/self/{name}") as file:
            return file.read()
    status = dict(line.split(":", 1) for line in proc("status").splitlines())
    links = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            links[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # that of the listing
            pass
    return {
        "modules": modules, "argv": (sys.argv, sys.orig_argv[1:]), "path": sys.path, "flags": str(sys.flags),
        "importers": sorted(sys.path_importer_cache), "finders": [str(f).partition(" at 0x")[0] for f in sys.meta_path],
        "hooks": len(sys.path_hooks),
        "main": {n: str(v).partition(" at 0x")[0] for n, v in own.items() if n.startswith("__")},
        "is main": sys.modules["__main__"].__dict__ is globals(), "names": sorted(own),
        "environment": dict(os.environ), "files": os.listdir(), "descriptors": links,
        "handlers": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
        "status": {n: status[n] for n in ("SigBlk", "SigIgn", "SigCgt", "CapEff", "Uid", "Umask", "Cpus_allowed")},
        "leads": (os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()), "nice": os.nice(0),
        "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
        "streams": [
            (s.encoding, s.errors, s.line_buffering, s.fileno(), s.mode) for s in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.get_debug()),
        "python": (sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile()),
        "threads": [t.name for t in threading.enumerate()], "exit": atexit._ncallbacks(),
        "warnings": [str(f) for f in warnings.filters], "logging": str(logging.getLogger().handlers),
        "locale": locale.getlocale(), "faulthandler": faulthandler.is_enabled(), "temporary": tempfile.gettempdir(),
        "torch": (
            torch.get_num_threads(), torch.get_num_interop_threads(),
            str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(), torch.cuda.is_initialized(), torch._C._get_tracing_state(),
            torch.utils.data.get_worker_info(), str(torch.get_default_device()),
        ),
    }

own = dict(globals())
modules = list(sys.modules)
import json, os
with open({path!r}, "w") as file:
    json.dump(state(), file)
raise ValueError(beside.name)
'''


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """Scripts with the same imports share a server: most of these import torch and then os."""
    with Processes() as found:
        yield found


@pytest.fixture
def beside(tmp_path: Path) -> str:
    """A directory on the search path with a module."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "beside.py").write_text("import os\nname = 'beside'\nos.write(2, b'imported\\n')\n")
    return str(tmp_path / "lib")


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory with a module ``torch`` that is imported at once, for what does not depend on the real one."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "torch.py").write_text(LIGHT)
    return str(folder)


LIGHT = """\
class Generator:
    initial_seed = seed = lambda self: 0
default_generator = Generator()
"""


def script(text: str, *search_path: str, timeout: float = 120.0) -> Script:
    return Script(text, timeout, search_path)


def is_forked(told: Path) -> bool:
    return "fork_server" in told.read_text()


TELL = "import torch\nimport os\nopen({!r}, 'w').write(open(f'/proc/{{os.getppid()}}/cmdline').read())\n"


def test_a_script_cannot_tell_a_forked_run_from_a_fresh_one(processes: Processes, beside: str, tmp_path: Path) -> None:
    states, outputs = [], []
    for forked in (False, True, True):
        path = tmp_path / "state.json"
        text = STATE.lstrip().replace("{path!r}", repr(str(path)))
        ended = processes.run(script(text, beside), plain=True, forked=forked)
        place = json.loads(path.read_text())["main"]["__file__"].removesuffix("/run/repro.py")
        states.append(json.loads(path.read_text().replace(place, "PLACE")))
        outputs.append(ended.output.replace(place, "PLACE"))
        assert ended.code == 1
    assert states[1] == states[0]
    assert states[2] == states[0]
    assert outputs[0].startswith("imported\n")
    assert outputs[0].endswith("ValueError: beside\n")
    assert outputs[1:] == outputs[:1] * 2


def test_imports_that_were_begun_serve_the_scripts_that_have_them(light: str, tmp_path: Path) -> None:
    count = tmp_path / "imported"
    (tmp_path / "counted.py").write_text(f"open({str(count)!r}, 'a').write('x')\n")
    head = "import torch\nimport counted\n"
    with Processes() as processes:
        processes.prepare(script(head, light, str(tmp_path)))
        for said in ("print(1)\n", "print(2)\n"):
            assert processes.run(script(head + said, light, str(tmp_path)), plain=True, forked=True).forked
        processes.prepare(script("print('no imports')\n", light))
    assert count.read_text() == "x"


@pytest.mark.slow
def test_a_reported_run_says_the_same_forked(processes: Processes, beside: str) -> None:
    text = "import torch\nimport beside\ndef go():\n    torch.zeros(2) @ torch.zeros(3)\ngo()"
    fresh, forked = (processes.run(script(text, beside), plain=False, forked=f) for f in (False, True))
    assert fresh.report is not None
    assert forked.report is not None
    inner = [
        [f for f in r["failure"]["frames"] if f["file"] != "<frozen runpy>"] for r in (fresh.report, forked.report)
    ]
    assert inner[0] == inner[1]
    for report in (fresh.report, forked.report):
        del report["failure"]["frames"]
    assert (fresh.code, fresh.output, fresh.report) == (forked.code, forked.output, forked.report)


def test_random_numbers_are_not_those_of_another_run(processes: Processes, tmp_path: Path) -> None:
    told = tmp_path / "told"
    drawn = "(random.random(), numpy.random.rand(), torch.rand(1).item())"
    text = f"import torch\nimport random\nimport numpy.random\nopen({str(told)!r}, 'a').write(f'{{{drawn}}}\\n')"
    for _ in range(2):
        assert processes.run(script(text), plain=True, forked=True).code == 0
    first, second = map(ast.literal_eval, told.read_text().splitlines())
    assert not set(first) & set(second)


@pytest.mark.slow
def test_a_seed_that_the_imports_set_stays(processes: Processes, beside: str, tmp_path: Path) -> None:
    Path(beside, "beside.py").write_text("import torch\ntorch.manual_seed(5)\n")
    told = tmp_path / "told"
    text = f"import torch\nimport beside\nopen({str(told)!r}, 'a').write(f'{{torch.rand(1).item()}}\\n')"
    for forked in (False, True):
        assert processes.run(script(text, beside), plain=True, forked=forked).code == 0
    assert len(set(told.read_text().split())) == 1


def test_one_run_does_not_harm_the_next(processes: Processes, light: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    harm = "import torch\nimport os\ntorch.Generator = None\nos.environ['X'] = '1'\nos.kill(os.getpid(), 11)"
    assert processes.run(script(harm, light), plain=True, forked=True).code == -signal.SIGSEGV
    text = TELL.format(str(told)) + "assert torch.Generator is not None and 'X' not in os.environ\n"
    assert processes.run(script(text, light), plain=True, forked=True).code == 0
    assert is_forked(told)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n", 0),
        ("raise ImportError('not here')\n", 1),
        ("import os\nif 'fork_server' in open('/proc/self/cmdline').read():\n    os._exit(3)\n", 0),
    ],
)
def test_where_the_imports_cannot_be_shared_the_run_is_fresh(
    processes: Processes, beside: str, light: str, tmp_path: Path, module: str, code: int
) -> None:
    Path(beside, "beside.py").write_text(module)
    told = tmp_path / "told"
    text = TELL.format(str(told)).replace("import os\n", "import os\nimport beside\n")
    ended = processes.run(script(text, light, beside), plain=True, forked=True)
    assert ended.code == code
    assert code or not is_forked(told)


def test_a_forked_hang_ends_at_its_limit_with_all_that_it_started(
    processes: Processes, light: str, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    text = f"""\
import torch
import subprocess
import time
child = subprocess.Popen(["sleep", "300"])
open({str(told)!r}, "w").write(str(child.pid))
time.sleep(300)
"""
    ended = processes.run(script(text, light, timeout=2), plain=True, forked=True)
    assert ended.forked
    assert ended.code is None
    assert _gone([int(told.read_text())])


def test_few_servers_are_kept(light: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxminify.repro_templates.processes.MOST_SERVERS", 1)
    with Processes() as processes:
        for name in ("math", "cmath"):
            text = f"import torch\nimport {name}\n{name}.pi"
            assert processes.run(script(text, light), plain=True, forked=True).forked
            assert len(processes._servers) == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nobody_is_left_when_the_driver_is_gone(tmp_path: Path, how: signal.Signals) -> None:
    told = tmp_path / "told"
    text = f"import torch\nimport os, time\nopen({str(told)!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(300)"
    code = f"from fxminify.repro_templates.verify import verify\nverify({text!r}, print, runs=3, fresh=0)\n"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # what is killed leaves its files
    driver = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env=environment)
    end = time.monotonic() + 120
    while not told.exists() or told.read_text().count("\n") < 3:
        assert time.monotonic() < end
        time.sleep(0.1)
    runs = [int(pid) for pid in told.read_text().split()]
    servers = [p.pid for p in psutil.Process(driver.pid).children(recursive=True)]
    assert set(runs) <= set(servers)
    driver.send_signal(how)
    driver.wait(30)
    assert _gone(servers)


def _gone(pids: list[int]) -> bool:
    end = time.monotonic() + 20
    while any(map(alive, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


ONLY = """\
import torch
import os
forked = "fork_server" in open(f"/proc/{os.getppid()}/cmdline").read()
"""


def check(processes: Processes, text: str, **options: Any) -> Verification:
    shows = lambda failure: failure.message == "here"  # noqa: E731
    return verify(text, shows, runs=2, timeout=120.0, processes=processes, **options)


@pytest.mark.slow
def test_a_failure_of_forked_runs_alone_is_not_shown(processes: Processes) -> None:
    done = check(processes, f"{ONLY}if forked:\n    raise ValueError('here')")
    assert (done.shown, done.passed, done.mismatch) == (0, 2, "it ends with exit code 0")


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [0, 1])
def test_a_failure_of_fresh_runs_alone_is_shown(processes: Processes, fresh: int) -> None:
    assert check(processes, f"{ONLY}if not forked:\n    raise ValueError('here')", fresh=fresh).shown == 2


@pytest.mark.parametrize(("fresh", "seen"), [(0, "ff"), (1, ".f"), (2, "..")])
def test_so_many_runs_are_fresh(processes: Processes, tmp_path: Path, fresh: int, seen: str) -> None:
    told = tmp_path / "told"
    text = f"{ONLY}open({str(told)!r}, 'a').write('f' if forked else '.')\nraise ValueError('here')"
    assert check(processes, text, fresh=fresh).shown == 2
    assert "".join(sorted(told.read_text())) == seen


def test_a_forked_crash_has_its_stack(processes: Processes) -> None:
    text = "import torch\nimport os\ndef die():\n    os.kill(os.getpid(), 11)\ndie()"
    done = verify(
        text, lambda failure: failure.kind is FailureKind.CRASH, runs=2, timeout=120.0, processes=processes, fresh=0
    )
    assert done.shown == 2
    assert done.failures[0] is not None
    assert done.failures[0].frames[-1].function == "die"


def test_the_imports_at_the_head_of_a_script() -> None:
    text = '"""Doc."""\n\nimport torch  # all of it\nfrom a import (\n    b,\n)\n\nx = 1\n'
    assert split(text) == ("import torch\nfrom a import b", "\n\n\n\n\n\n\nx = 1\n")
    assert split("import torch") == ("import torch", "")
    assert split("import math\nimport torch\nimport a\n") == ("import math\nimport torch\nimport a", "\n\n\n")
    for text in (
        "x = 1\nimport torch",
        "import torch; x = 1",
        "from __future__ import annotations\nimport torch",
        "1 +",
        "import math\n",
        "import a\nimport torch",
        "import torch\nx = torch.ones(1, device='cuda')",
    ):
        assert split(text) == ("", text)
