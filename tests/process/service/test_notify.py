"""Targets are told of each bug and event once: a webhook and a GitHub of this test, and commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from desks import invoke
from indexes import add, chain, failing, minify

from fxminify.minifier.oracle.ablation import SAME, Ablation, AblationRow
from fxminify.service.workers.notify import Notifier
from fxminify.service.workers.targets import BadTargets, Target, read
from fxminify.store.index import BugStatus, DeliveryState, Index
from fxminify.store.index.deliveries import WHATS

#: A notifier that is killed while it sends.
KILLED = """
import sys
from pathlib import Path
from fxminify.service.workers.notify import Notifier
from fxminify.service.workers.targets import read
from fxminify.store.index import Index
targets, page = read(Path(sys.argv[2]))
Notifier(Index.open(sys.argv[1]), targets, page, lambda event, text: None).step()
"""


class Listener(ThreadingHTTPServer):
    """Answers as a webhook, and as the issues of a GitHub repository. ``status`` is what it answers, 0: nothing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.status = 200
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.issues: list[dict[str, Any]] = []
        self.comments: list[tuple[str, dict[str, Any]]] = []
        self.came = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.answer(self.server.issues if path.endswith("/issues") else [row for at, row in self.server.comments])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, dict(self.headers), body))
        made: dict[str, Any] = {}
        if self.path.endswith("/issues") and self.server.status in (0, 200):
            made = body | {"html_url": f"https://github.example/o/r/issues/{len(self.server.issues) + 1}"}
            self.server.issues.insert(0, made)
        elif self.path.endswith("/comments"):
            self.server.comments.append((self.path, body))
        self.server.came.set()
        self.answer(made)

    def answer(self, content: Any) -> None:
        if not self.server.status:
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def index(place: str) -> Iterator[Index]:
    with Index.open(place, create=True) as index:
        yield index


def notifier(index: Index, *targets: Target) -> Notifier:
    made = Notifier(index, targets, "https://failures.example", lambda event, text: None)
    made.step()  # from now on
    return made


def met(index: Index, name: str) -> int:
    return add(index, chain(["relu", "sin"]), failing(f"no {name}"))


def explained(index: Index, id: int) -> None:
    """A capture has a script, and what explains it is over."""
    minify(index, id, chain(["sin"]), script="import torch\n")
    for task in index.tasks.page():
        if task.kind == "ablate" and task.state == "queued":
            index.tasks.cancel(task.id)


def state(index: Index) -> list[tuple[str, int, DeliveryState]]:
    return [(one.what, one.bug, one.state) for one in index.deliveries.page()]


def tomorrow(index: Index) -> None:
    """What was sent and made so far was so yesterday."""
    with index.database.writing() as session:
        for column in ("sent", "created"):
            session.connection().exec_driver_sql(
                f"UPDATE deliveries SET {column} = '2020-01-01T00:00:00+00:00' WHERE {column} IS NOT NULL"
            )


def now_due(index: Index) -> None:
    with index.database.writing() as session:
        session.connection().exec_driver_sql("UPDATE deliveries SET until = 1 WHERE state = 'waiting'")


def test_a_webhook_is_told_of_each_bug_and_event_once(index: Index, listener: Listener) -> None:
    met(index, "earlier")
    hook = notifier(index, Target("team", url=f"{listener.url}/hook", events=WHATS))
    id = met(index, "sin")
    met(index, "sin")
    met(index, "ignored")
    index.triage.set(3, BugStatus.IGNORED)
    hook.step()
    minify(index, id, chain(["sin"]), script="import torch\n")
    hook.step()
    assert [body["what"] for _, _, body in listener.got] == ["new"]  # the rest waits for what explains it
    reduction = index.reductions.last(id)
    assert reduction is not None
    rows = (AblationRow("eager", "Dynamo", SAME),)
    index.artifacts.save(id, "ablation", Ablation(rows, "Dynamo", reduction=reduction.id).to_json())
    index.tasks.cancel(next(task.id for task in index.tasks.page() if task.kind == "ablate"))
    for fixed in (True, False, True, False):
        index.triage.retested(id, {"torch": "2.14.0"}, fixed=fixed)
    for _ in range(2):
        hook.step()
    assert [body["what"] for _, _, body in listener.got] == ["new", "verified", "fixed", "regressed"]
    path, headers, body = listener.got[1]
    assert (path, headers["Idempotency-Key"]) == ("/hook", "fxminify-2")
    assert (body["bug"], body["headline"], body["layer"]) == (2, "RuntimeError: no sin", "Dynamo")
    assert body["page"] == "https://failures.example/bugs/2"
    assert {one.state for one in index.deliveries.page()} == {DeliveryState.SENT}


def test_what_is_refused_is_tried_again_later_and_what_may_have_come_is_not(index: Index, listener: Listener) -> None:
    hook = notifier(index, Target("team", url=listener.url, events=("new",)))
    listener.status = 503
    met(index, "a")
    hook.step()
    hook.step()
    assert (len(listener.got), state(index)) == (1, [("new", 1, DeliveryState.WAITING)])
    assert index.deliveries.page()[0].answer == "127.0.0.1 answers 503: {}"
    listener.status = 200
    now_due(index)
    hook.step()
    assert (len(listener.got), state(index)) == (2, [("new", 1, DeliveryState.SENT)])
    listener.status = 0
    met(index, "b")
    hook.step()
    now_due(index)
    hook.step()
    assert (len(listener.got), state(index)[1:]) == (3, [("new", 2, DeliveryState.UNKNOWN)])
    listener.status = 422
    met(index, "c")
    hook.step()
    assert state(index)[2:] == [("new", 3, DeliveryState.FAILED)]


def test_nobody_there_is_no_doubt(index: Index, listener: Listener) -> None:
    listener.shutdown()
    listener.server_close()
    hook = notifier(index, Target("team", url=listener.url, events=("new",)))
    met(index, "a")
    hook.step()
    (one,) = index.deliveries.page()
    assert (one.state, one.attempts) == (DeliveryState.WAITING, 1)
    assert "does not answer" in one.answer


def test_beyond_so_many_a_day_the_rest_comes_as_one(index: Index, listener: Listener) -> None:
    hook = notifier(index, Target("team", url=listener.url, events=("new",), per_day=2))
    for number in range(5):
        met(index, f"n{'x' * number}")
    hook.step()
    hook.step()
    assert [body["bug"] for _, _, body in listener.got] == [1, 2]
    tomorrow(index)
    hook.step()
    (digest,) = [body for _, _, body in listener.got[2:]]
    assert (digest["what"], [one["bug"] for one in digest["bugs"]]) == ("digest", [3, 4, 5])
    assert len({one.message for one in index.deliveries.page()}) == 3
    met(index, "one")
    met(index, "two")
    hook.step()
    assert len(listener.got) == 4  # the digest was the first of today


def test_an_issue_is_opened_once_and_commented_on(
    index: Index, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_TOKEN", "secret")
    target = Target("issues", github="o/r", api=listener.url, token_variable="OUR_TOKEN", labels=("compiler",))
    hub = notifier(index, target)
    id = met(index, "sin")
    explained(index, id)
    listener.status = 0  # it is made, and nobody hears of it
    hub.step()
    listener.status = 200
    now_due(index)
    hub.step()
    (issue,) = listener.issues
    assert (issue["title"], issue["labels"]) == ("[planted] minimal script: RuntimeError: no sin", ["compiler"])
    assert "import torch" in issue["body"]
    (told,) = index.deliveries.page()
    assert (told.state, told.answer) == (DeliveryState.SENT, "https://github.example/o/r/issues/1")
    index.triage.retested(id, {"torch": "2.14.0"}, fixed=True)
    hub.step()
    ((at, comment),) = listener.comments
    assert at == "/repos/o/r/issues/1/comments"
    assert comment["body"].startswith("its script and its graph pass with torch 2.14.0")
    assert {headers.get("Authorization") for _, headers, _ in listener.got} == {"Bearer secret"}
    assert "secret" not in json.dumps([one.to_json() for one in index.deliveries.page()])


def test_what_was_being_sent_by_a_process_that_was_killed_is_not_sent_again(
    place: str, index: Index, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    wait = tmp_path / "wait"
    command = ["/bin/sh", "-c", f"cat >> {said}; echo >> {said}; exec sleep $(cat {wait})"]
    file = tmp_path / "notify.toml"
    file.write_text(f'[pager]\ncommand = {json.dumps(command)}\nevents = ["new"]\n')
    wait.write_text("60")
    pager = notifier(index, *read(file)[0])
    met(index, "a")
    with subprocess.Popen([sys.executable, "-c", KILLED, place, str(file)]) as process:
        while not said.exists() or not said.read_text().endswith("\n"):
            assert process.poll() is None
        assert state(index) == [("new", 1, DeliveryState.SENDING)]
        os.kill(process.pid, signal.SIGKILL)
    wait.write_text("0")
    met(index, "b")
    pager.step()
    assert state(index) == [("new", 1, DeliveryState.UNKNOWN), ("new", 2, DeliveryState.SENT)]
    assert [json.loads(line)["bug"] for line in said.read_text().splitlines()] == [1, 2]
    wait.write_text("nonsense")
    met(index, "c")
    pager.step()
    assert index.deliveries.page()[-1].answer.startswith("/bin/sh ended with exit code 1: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "is no table"),
        ("", "names no target"),
        ("[a]\nurls = 'http://x'", "has no setting urls; it has command, url"),
        ("[a]\nurl = 7", "Expected `str`"),
        ("[a]\nurl = 'http://x'\ncommand = ['y']", "needs one of command, url and github"),
        ("[a]\nurl = 'file:///etc/passwd'", "is no http address"),
        ("[a]\nurl = 'http://example.com'\ntoken_variable = 'T'", "unencrypted"),
        ("[a]\ngithub = 'x'", "owner/repository"),
        ("[a]\nurl = 'http://x'\nevents = ['all']", "names the event 'all'; there are new, verified, fixed, regressed"),
        ("[a]\nurl = 'http://x'\nper_day = 0", "per_day"),
        ("page = 1\n[a]\nurl = 'http://x'", "page is an address"),
        ("[a", "cannot be read"),
    ],
)
def test_a_file_that_names_targets_in_another_way_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "notify.toml"
    path.write_text(text)
    with pytest.raises(BadTargets, match=said):
        read(path)


def test_the_verb_tells_and_lists(tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "notify.toml").write_text(f"[team]\nurl = '{listener.url}'\nevents = ['new']\n")
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        assert invoke(tmp_path, "notify", "repro.db").stdout == "No notification was sent yet.\n"
        invoke(tmp_path, "notify", "repro.db", "--send", "notify.toml")
        for name in ("a", "b"):
            met(index, name)
    done = invoke(tmp_path, "notify", "repro.db", "--send", "notify.toml", "--limit", "1")
    assert done.stderr.splitlines() == ["sent to team: bug 1 (new)", "sent to team: bug 2 (new)"]
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["id", "target", "what", "bug", "state", "sent", "answer"]
    assert lines[1].split()[:5] == ["1", "team", "new", "1", "sent"]
    assert lines[-1] == "These are not all. The next: minify notify repro.db --limit 1 --after 1"
    rows = json.loads(invoke(tmp_path, "notify", "repro.db", "--json").stdout)
    assert [(row["what"], row["bug"], row["state"]) for row in rows] == [("new", 1, "sent"), ("new", 2, "sent")]
    refused = invoke(tmp_path, "work", "repro.db", "--notify", "nowhere.toml")
    assert (refused.exit_code, "cannot be read" in refused.stderr) == (2, True)
