"""``--sandbox``, with a backend that writes to the home, calls a server of this machine, and reads the key."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
import torch
from torch._dynamo.backends import registry

import fxminify
from fxminify import cli
from fxminify.backends.running import confinement, namespaces
from fxminify.backends.running.confinement import Confinement, NoConfinement
from fxminify.minifier.doctor import examine
from fxminify.minifier.regression.retest import RetestOptions, retest
from fxminify.minifier.reporting.emit import verify_stored
from fxminify.minifier.reporting.export import ExportRequest, export
from fxminify.repro_templates.processes import Processes, Script
from fxminify.store.index import Index, State

WAYS = {"namespaces": Confinement(), "bubblewrap": Confinement("bwrap")}
HOSTILE = '''
import os
import socket

from torch._dynamo import register_backend

HOME, PORT = {home!r}, {port}


def break_out():
    """What succeeds of it."""
    done = []
    for name in ("pwned", ".bashrc"):
        try:
            with open(os.path.join(HOME, name), "w") as file:
                file.write("pwned")
        except OSError:
            pass
    try:
        with open(os.path.join(HOME, ".local/state/fxminify/key"), "rb") as file:
            done.append("read the key: " + str(len(file.read())))
    except OSError:
        pass
    for family, address in ((socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_UNIX, os.path.join(HOME, "socket"))):
        try:
            with socket.socket(family) as any_socket:
                any_socket.settimeout(5)
                any_socket.connect(address)
            done.append("called a server")
        except OSError:
            pass
    if os.environ.get("SECRET_OF_" + "THE_USER"):
        done.append("read a variable")
    try:
        with open(os.path.join(os.path.dirname(__file__), "pwned"), "w") as file:
            done.append("wrote beside its module")
    except OSError:
        pass
    return done


@register_backend
def hostile(gm, inputs):
    if not os.path.exists(os.path.join(HOME, "capturing")) and (done := break_out()):
        raise RuntimeError("broke out: " + ", ".join(done))
    if any("relu" in str(node.target) for node in gm.graph.nodes):
        raise NotImplementedError("cannot lower relu")
    return gm.forward
'''


def way(name: str) -> Confinement:
    reason = confinement._problem(WAYS[name])
    if reason:
        pytest.skip(f"this system has no {name}: {reason}")
    return WAYS[name]


@pytest.fixture(params=sorted(WAYS))
def confined(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Confinement:
    """Each way to confine processes, as if the system had no other."""
    found = way(request.param)
    monkeypatch.setattr(confinement, "confinement", lambda: found)
    return found


class Victim:
    """A home with a key, a server that counts who calls it, and an index with a failure of the hostile backend."""

    def __init__(self, folder: Path, servers: list[socket.socket]) -> None:
        self.home = folder / "home"
        self.servers = servers
        self.db = folder / "repro.db"

    def calls(self) -> int:
        count = 0
        for server in self.servers:
            server.settimeout(0.0)
            try:
                while True:
                    server.accept()[0].close()
                    count += 1
            except BlockingIOError:
                continue
        return count

    def is_untouched(self) -> bool:
        state = self.home / ".local/state/fxminify"
        found = {path.relative_to(self.home).as_posix() for path in self.home.rglob("*") if path.is_file()}
        return found == {".local/state/fxminify/key"} and len((state / "key").read_bytes()) == 32 and not self.calls()


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    home, modules = tmp_path / "home", tmp_path / "modules"
    home.mkdir()
    modules.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".local/state"))
    monkeypatch.setenv("SECRET_OF_THE_USER", "s3cret")
    monkeypatch.syspath_prepend(str(modules))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as service:
        monkeypatch.chdir(home)  # the name of such a socket must be short
        service.bind("socket")
        service.listen()
        (modules / "hostile_backend.py").write_text(HOSTILE.format(home=str(home), port=server.getsockname()[1]))
        found = Victim(tmp_path, [server, service])
        monkeypatch.delitem(sys.modules, "hostile_backend", raising=False)
        monkeypatch.delitem(registry._COMPILER_FNS, "hostile", raising=False)
        capturing = home / "capturing"
        capturing.touch()
        importlib.import_module("hostile_backend")
        torch._dynamo.reset()
        fxminify.install(found.db, check=False, data="full")
        try:
            with pytest.raises(Exception, match="cannot lower relu"):
                torch.compile(lambda x: torch.relu(x) + x * 2, backend="hostile")(torch.randn(4))
        finally:
            fxminify.uninstall()
            capturing.unlink()
        monkeypatch.chdir(tmp_path)
        yield found


QUICK: dict[str, Any] = {"replays": 1, "runs": 2, "explain": False}


def test_without_a_sandbox_the_backend_breaks_out(victim: Victim) -> None:
    (result,) = fxminify.minify(victim.db, options=fxminify.MinifyOptions(**QUICK))
    assert result.state is not State.VERIFIED
    assert (victim.home / "pwned").read_text() == "pwned"
    assert victim.calls() >= 2


@pytest.mark.parametrize(
    "confined", [pytest.param(how, marks=pytest.mark.slow) for how in ("bubblewrap", "namespaces")], indirect=True
)
def test_in_a_sandbox_it_does_not_and_its_failure_is_minified(victim: Victim, confined: Confinement) -> None:
    assert victim.is_untouched()
    (result,) = fxminify.minify(victim.db, options=fxminify.MinifyOptions(sandbox=True, **QUICK))
    assert (result.state, result.reason, result.capture.nodes_after) == (State.VERIFIED, "", 1)
    (row,) = verify_stored(str(victim.db), [1], runs=2, timeout=300, sandbox=True)
    assert (row["shown"], row["runs"], row["mismatch"]) == (2, 2, "")
    (answer,) = retest(str(victim.db), [1], RetestOptions(sandbox=True, runs=2))
    assert (answer.result, answer.message) == ("still failing", "")
    made = export(str(victim.db), 1, ExportRequest("pytest"), sandbox=True)
    assert (made.tentative, made.info["verified"]) == ("", 2)
    assert victim.is_untouched()


@pytest.mark.slow
def test_ablation_and_the_command_line_are_confined_too(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    found = way("namespaces")
    monkeypatch.setattr(confinement, "confinement", lambda: found)
    run = click.testing.CliRunner().invoke
    done = run(cli.main, ["run", str(victim.db), "--sandbox", "--replays", "1", "--runs", "1", "--no-explain"])
    assert done.exit_code == 0, done.output
    script = victim.db.with_name("script.py")
    with Index.open(str(victim.db), readonly=True) as index:
        stored = index.repros.get(1)
    assert stored is not None
    script.write_text(stored.text)
    monkeypatch.setenv("PYTHONPATH", str(victim.db.parent / "modules"))
    done = run(cli.main, ["verify", str(script), "--sandbox", "--runs", "1"])
    assert "1 of 1 runs show" in done.output
    done = run(cli.main, ["ablate", str(victim.db), "1", "--sandbox", "--backend", "eager"])
    assert "same" in done.output
    assert victim.is_untouched()


def run(confined: Confinement, text: str, **more: Any) -> tuple[int | None, str]:
    with Processes(confined) as processes:
        ended = processes.run(Script(text, 60.0, **more), plain=True, forked=True)
    return ended.code, ended.output


def test_a_confined_script_ends_as_it_would_elsewhere(confined: Confinement) -> None:
    assert run(confined, "import os, signal\nos.kill(os.getpid(), signal.SIGABRT)")[0] == -6
    assert run(confined, "raise SystemExit(77)") == (77, "")
    assert run(confined, "import os, sys\nprint(os.listdir(), os.listdir('..'), file=sys.stderr)")[1].startswith(
        "['repro.py'] ["
    )
    with Processes(confined) as processes:
        ended = processes.run(Script("raise KeyError('no lowering')", 60.0), plain=False)
    assert ended.report is not None
    assert ended.report["failure"]["message"] == "'no lowering'"


ESCAPES = {
    "undo a mount": "libc.umount2(b'/tmp', 2)",
    "undo a mount in other namespaces": "(libc.unshare(0x10020000), libc.umount2(b'/tmp', 2))[1]",
    "write again": "libc.mount(None, b'/', None, 32 | 4096, None)",
    "the parent's files": "os.listdir(f'/proc/{os.getppid()}/root') and 0",
    "the files of the first process": "os.listdir('/proc/1/root') and 0",
    "a file system of its own": "libc.mount(b'proc', b'/mnt', b'proc', 0, None)",
    "the root": "os.close(os.open('/pwned_by_a_test', os.O_CREAT | os.O_WRONLY))",
}


@pytest.mark.parametrize("name", sorted(ESCAPES))
def test_a_confined_script_cannot_leave_its_namespaces(confined: Confinement, name: str) -> None:
    text = f"import ctypes, os\nlibc = ctypes.CDLL(None)\nif ({ESCAPES[name]}) in (0, None):\n    os._exit(99)"
    code, output = run(confined, text)
    assert code == 0 or (code == 1 and ("PermissionError" in output or "Read-only" in output)), output


def test_a_confined_script_reads_no_variable_of_another_process(confined: Confinement) -> None:
    """That of the process which began it, say, which has all of them."""
    text = """
import os, sys
found = []
for name in filter(str.isdecimal, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/environ", "rb") as file:
            found += [name] if b"SECRET_OF_A_TEST=s3cret" in file.read() else []
    except OSError:
        pass
print(found, file=sys.stderr)
"""
    environment = {**os.environ, "SECRET_OF_A_TEST": "s3cret"}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE) as other:
        try:
            with Processes() as processes:
                ended = processes.run(Script(text, 60.0), plain=True)
            assert str(other.pid) in ended.output  # so it can be found
            assert run(confined, text) == (0, "[]\n")
        finally:
            other.kill()


def test_only_where_a_needed_module_lies_comes_back_and_no_keys(confined: Confinement, tmp_path: Path) -> None:
    """Links are resolved first: a harmless name that leads to keys is none."""
    for name in ("modules", ".ssh", "documents", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    for name in ("modules", ".ssh"):
        (tmp_path / name / "team.py").touch()
    (tmp_path / "link").symlink_to(tmp_path / ".ssh")
    text = f"import os, sys\nprint(sorted(os.listdir({str(tmp_path)!r})), file=sys.stderr)\nimport team"
    named = [str(tmp_path / name) for name in ("link", ".ssh", "documents", "modules")]
    assert run(confined, text, search_path=named) == (0, "['modules']\n")
    assert confinement.plan([], named[:2]) == confinement.plan()
    read = f"open({str(tmp_path / 'modules' / 'file')!r}).close()\nopen({str(tmp_path / 'modules' / 'new')!r}, 'w')"
    read = f"import team\n{read}"
    code, output = run(confined, read, search_path=named)
    assert (code, "Read-only file system" in output) == (1, True)


def test_a_link_that_a_script_leaves_behind_is_not_read(confined: Confinement, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"exit": 1}')
    text = f"import os\nos.symlink({str(secret)!r}, '../report/report.json')\nos._exit(3)"
    with Processes(confined) as processes:
        ended = processes.run(Script(text, 60.0), plain=False)
    assert (ended.code, ended.report) == (3, None)


def test_a_sandbox_that_cannot_be_had_is_refused_and_nothing_runs(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "_problem", lambda way: "Operation not permitted")
    confinement.confinement.cache_clear()
    try:
        with pytest.raises(NoConfinement, match=r"--sandbox cannot be had here .*Nothing was run"):
            fxminify.minify(victim.db, options=fxminify.MinifyOptions(sandbox=True, trust=True))
        done = click.testing.CliRunner().invoke(cli.main, ["run", str(victim.db), "--sandbox", "--trust"])
        (row,) = [row for row in examine() if row["check"] == "sandbox"]
    finally:
        confinement.confinement.cache_clear()
    assert (done.exit_code, "minify doctor" in done.output) == (2, True)
    assert (row["ok"], "Install bubblewrap" in row["found"]) == (None, True)
    with Index.open(str(victim.db), readonly=True) as index:
        assert index.captures.get(1).state is State.PENDING
    assert victim.is_untouched()


def test_doctor_names_the_way() -> None:
    way("namespaces")
    here = confinement.confinement()
    assert here == Confinement(shutil.which("bwrap") or "")
    (row,) = [row for row in examine() if row["check"] == "sandbox"]
    assert row == {"check": "sandbox", "ok": True, "found": f"--sandbox works, with {here.name}"}


def test_a_cluster_has_no_sandbox(tmp_path: Path) -> None:
    options = fxminify.MinifyOptions(sandbox=True, executor="local:1")
    with pytest.raises(NoConfinement, match=r"not workers of --executor: give one\.$"):
        fxminify.minify(tmp_path / "repro.db", options=options)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_an_ordinary_user_has_a_sandbox() -> None:
    way("namespaces")
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")  # that of the tests may be in the home of root
    if python is None:
        pytest.skip("this system has no Python of its own")
    text = Path(namespaces.__file__).read_text()
    steps = [["device", "/dev/null"], ["hide", "/tmp"]]
    command = [python, "-I", "-S", "-c", text, json.dumps(steps), "/bin/sh", "-c", "id -u; ls -A /tmp; > /tmp/x; > /x"]
    done = subprocess.run(
        command, user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True, check=False
    )
    assert (done.stdout, "Read-only file system" in done.stderr) == ("65534\n", True), done.stderr


CALLS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
one, other = socket.socketpair()
for path in ("socket", "\\0abstract"):
    try:
        with socket.socket(socket.AF_UNIX) as service:
            service.connect(path)
        print("called a service")
    except PermissionError:
        print("refused")
for number in KEYS:
    print(libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno())
"""


def test_no_service_of_the_file_system_and_no_key_of_the_session_is_reached(
    confined: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket lies in a directory that is not hidden. Nothing but a filter of system calls stops these."""
    seen = Path(fxminify.__file__).parent
    with tempfile.TemporaryDirectory(dir=seen) as place, socket.socket(socket.AF_UNIX) as service:
        monkeypatch.chdir(place)  # the name of such a socket must be short
        service.bind("socket")
        service.listen()
        program = CALLS.replace("KEYS", repr(namespaces._CALLS[os.uname().machine][2]))
        command = confined.command([sys.executable, "-c", program])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        monkeypatch.chdir(seen)
    assert done.stdout.splitlines() == ["refused", "refused", "-1 1", "-1 1", "-1 1"], done.stderr


def test_a_machine_without_a_known_filter_has_no_sandbox() -> None:
    with pytest.raises(OSError, match="no filter of system calls for riscv64"):
        namespaces._filter("riscv64")
