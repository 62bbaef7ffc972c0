"""The pages of `minify serve`: what they say, what their forms change, who may see them, and that nothing else runs."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import indexes
import numpy
import pytest
from fastapi.routing import APIRoute
from indexes import add, chain, failing, minify
from serving import ON_BOTH, OPTIONS, Answer, Served, serving, with_storage

from fxminify.service.http.forms import forms, previews
from fxminify.service.http.pages import BUGS, pages
from fxminify.store.failure import Failure, FailureKind, Frame, Phase
from fxminify.store.index import BugStatus, Index, State, TaskState, TokenScope
from fxminify.store.index.sessions import LASTS

#: Every page with an id that there is, and the scopes of which it needs one.
PAGES = sorted(
    (method, route.path.replace("{id}", "1"), tuple(map(str, route.tags)))
    for each in (pages, previews, forms)
    for route in each.routes
    if isinstance(route, APIRoute)
    for method in route.methods or ()
)
QUERIES = {"/bugs/1/merge": "?into=2", "/bugs/1/split": "?bug=3"}
HOSTILE = (
    "</script><script>alert(1)</script>", "</style><img src=x onerror=alert(1)>", "\"'><a href=javascript:alert(1)>",
    "{{ 7 * 7 }}{% raw %}", "</textarea></title>\x1b[2J\u202e\0", "&lt;script&gt;", "' onmouseover='alert(1)",
)  # fmt: skip


class Parsed(HTMLParser):
    """The elements of a page, the texts in them, and its forms: the fields that a browser would send, by address."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.forms: dict[str, dict[str, str]] = {}
        self._form: dict[str, str] = {}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append((tag, given))
        self._inside = tag
        if tag == "form":
            self._form = {}
            self.forms[f"{given['method']} {given['action']} {len(self.forms)}"] = self._form
        if tag == "input" and given.get("name"):
            self._form[str(given["name"])] = given.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.said.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.said))


@dataclass
class Person:
    """Somebody at a browser without scripts: opens pages, sends their forms, keeps cookies, follows redirections."""

    served: Served
    cookies: dict[str, str] = field(default_factory=dict)
    path: str = ""
    answer: Answer = field(default_factory=lambda: Answer(0, b"", {}))

    def open(self, path: str) -> Parsed:
        return self._ask("GET", path, None, {})

    @property
    def page(self) -> Parsed:
        return Parsed(self.answer.body.decode())

    def send(self, action: str, **fields: str) -> Parsed:
        """The first form of this page with an address that begins like that, its fields filled in."""
        ((name, given),) = [
            (name, form) for name, form in self.page.forms.items() if name.partition(" ")[2].startswith(f"{action} ")
        ][:1]
        method, address, _ = name.split(" ")
        body = urlencode(given | fields)
        if method == "get":
            return self._ask("GET", f"{address}?{body}", None, {})
        sent = {"Content_Type": "application/x-www-form-urlencoded", "Origin": self.served.url}
        return self._ask("POST", address, body.encode(), sent)

    def _ask(self, method: str, path: str, body: bytes | None, sent: dict[str, str]) -> Parsed:
        if self.cookies:
            sent = {**sent, "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        self.answer = self.served.ask(method, path, body, Accept="text/html", **sent)
        if given := self.answer.headers.get("set-cookie"):
            name, _, value = given.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if "Max-Age=0" in given:
                del self.cookies[name]
        self.path = path
        if self.answer.status == 303:
            return self._ask("GET", self.answer.headers["location"], None, {})
        return self.page


def filled(index: Index) -> None:
    """Three bugs, the first of them minified."""
    first = add(index, chain(["relu", "sin"]), failing("no sin"))
    add(index, chain(["cos"]), failing("no cos"))
    add(index, chain(["tan"], backend="other"), failing("no tan"))
    minify(index, first, chain(["sin"]), script="import torch\n")
    index.captures.seen_again(first, 41, {"torch": "2.14.0", "python": "3.12.1"})


@pytest.fixture
def person(served: Served) -> Person:
    filled(served.index)
    return Person(served)


@pytest.fixture
def closed(place: str, tmp_path: Path) -> Iterator[Served]:
    """A server that asks everybody for a token."""
    with serving(place, tmp_path / "uploads", replace(OPTIONS, tokens=True)) as served:
        filled(served.index)
        yield served


def lines(page: Parsed) -> list[str]:
    """The addresses of bugs in a list."""
    return [
        str(given["href"]) for tag, given in page.elements
        if tag == "a" and given.get("class") == "headline"
    ]  # fmt: skip


def test_the_list_leads_to_a_bug_its_script_its_captures_and_tasks(person: Person) -> None:
    page = person.open("/")
    assert (person.path, len(lines(page))) == ("/bugs", 3)
    assert "3 bugs in 3 captures, seen 44 times." in page.text
    assert "#1 planted: sin: RuntimeError: no sin compile error in compile · 1 capture, seen 42×" in page.text  # noqa: RUF001
    assert " · 2 → 1 nodes · verified · last " in page.text
    page = person.open("/bugs/1")
    assert "#1 planted: sin: RuntimeError: no sin" in page.text
    assert "import torch" in page.text
    assert "From 2 to 1 compute node in 2 steps" in person.answer.body.decode()
    assert "torch 2.14.0, python 3.12.1" in page.text
    assert {"/captures/1", "/bugs/1?format=pytest#script", "/bugs/1/script?format=script"} <= {
        given.get("href") for tag, given in page.elements if tag == "a"
    }
    assert "torch.sin" in person.open("/bugs/1?format=issue").text
    assert person.open("/bugs/1?format=x").text.count("'x' is no format; there are script, pytest") == 1
    assert "Bug 2 has no verified script yet." in person.open("/bugs/2").text
    assert "The captured graph as source" in person.open("/captures/1").text
    assert "no sin" in person.open("/captures/1").text
    file = person.served.ask("GET", "/bugs/1/script?format=pytest")
    assert file.headers["content-disposition"] == 'attachment; filename="test_repro.py"'
    assert b"def test_" in file.body


def test_a_script_with_values_is_downloaded_with_them(person: Person) -> None:
    case, blobs = with_storage(chain(["sin"]), numpy.random.default_rng(1).random(1 << 14, "f4").tobytes())
    person.served.index.repros.save(1, "script", 'load_file("repro.safetensors")\n', verified=1, runs=1, log="",
                                    case=case, blobs=blobs)  # fmt: skip
    assert "Download repro.zip" in person.open("/bugs/1").text
    answer = person.served.ask("GET", "/bugs/1/script")
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.namelist() == ["repro.py", "repro.safetensors"]


@ON_BOTH
def test_the_list_is_searched_filtered_and_read_by_key(served: Served) -> None:
    for number in range(BUGS + 5):
        backend, letters = f"b{number % 2}", "".join("abcdefghij"[int(digit)] for digit in str(number))
        add(served.index, chain(["sin"], backend=backend), failing(f"no {letters} here"))
    person = Person(served)
    pages_: list[list[str]] = [lines(person.open("/bugs?order=new"))]
    (more,) = [str(a["href"]) for tag, a in person.page.elements if a.get("rel") == "next"]
    pages_.append(lines(person.open(more)))
    assert [bug for page in pages_ for bug in page] == [f"/bugs/{id}" for id in range(BUGS + 5, 0, -1)]
    (back,) = [str(a["href"]) for tag, a in person.page.elements if a.get("rel") == "prev"]
    assert lines(person.open(back)) == pages_[0]
    assert lines(person.open("/bugs?q=NO+BC+HERE&kind=&backend=&state=&status=open&order=seen")) == ["/bugs/13"]
    assert lines(person.open("/bugs?q=%2313")) == ["/bugs/13"]
    assert len(lines(person.open("/bugs?backend=b1&state=pending&kind=compile_error"))) == 27
    assert "No bug is like that." in person.open("/bugs?state=verified").text
    served.index.triage.set(13, BugStatus.IGNORED)
    assert lines(person.open("/bugs?q=no+bc+here")) == []
    assert [lines(person.open(f"/bugs?q=no+bc+here&status={each}")) for each in ("ignored", "all")] == 2 * [
        ["/bugs/13"]
    ]
    for wrong in ("kind=x", "state=x", "status=x", "order=x", "after=x", "before=1+x", "q=" + "x" * 2000):
        person.open(f"/bugs?{wrong}")
        assert person.answer.status == 422, wrong


@ON_BOTH
def test_a_bug_that_the_team_knows_is_marked(person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entry = {"signature": person.served.index.bugs.get(2).signature, "url": "https://example.com/issues/7"}
    entry |= {"state": "fixed in 2.14", "way_around": "<b>none</b>"}
    (tmp_path / "known.toml").write_text("[[known]]\n" + "".join(f'{k} = "{v}"\n' for k, v in entry.items()))
    place = "https://example.com/issues/7 (fixed in 2.14)"
    assert person.open("/bugs").text.count(f"known: {place}") == 1
    assert {place, "<b>none</b>"} <= set(person.open("/bugs/2").said)
    assert "example.com" not in person.open("/bugs/1").text
    assert "example.com" not in str(person.served.get("/api/v1/bugs/2").json)
    (tmp_path / "known.toml").write_text("[[known]]\nsignature = 1\n")
    assert "known:" not in person.open("/bugs").text


def test_forms_change_bugs_and_lead_back(served: Served) -> None:
    filled(served.index)
    index, person = served.index, Person(served)
    person.open("/bugs/2")
    assert "It is ignored now." in person.send("/bugs/2/status", more="3").text
    assert index.bugs.get(2).status is BugStatus.IGNORED
    assert "It is open." in person.send("/bugs/2/status").text
    assert index.bugs.get(2).status is BugStatus.OPEN
    page = person.send("/bugs/2/merge", into="1")
    assert "1 capture, seen 1 time, would be counted under bug 1" in page.text
    assert "They differ in signature." in page.text
    assert index.bugs.get(2).status is BugStatus.OPEN
    page = person.send("/bugs/2/merge")
    assert (person.path, "The other bug was merged" in page.text) == ("/bugs/1?done=merged", True)
    assert index.bugs.get(1).merged == (2,)
    assert "It is a duplicate of bug 1" in person.open("/bugs/2").text
    person.open("/bugs/1")
    assert "Split bug 2 from bug 1?" in person.send("/bugs/1/split").text
    assert "It is a bug of its own again." in person.send("/bugs/1/split").text
    assert index.bugs.get(1).merged == ()
    person.open("/bugs/1")  # its task was cancelled: it has a script
    assert "It is queued." in person.send("/bugs/1/reduce").text
    assert index.tasks.page([TaskState.QUEUED])[-1].config == {"again": True}
    person.open("/bugs/1")
    assert "is about the same bug and is not over yet" in person.send("/bugs/1/reduce").text
    assert person.answer.status == 409
    person.open("/bugs/1")
    assert "It is queued." in person.send("/bugs/1/retest").text
    assert index.tasks.page([TaskState.QUEUED])[-1].kind == "retest"
    person.open("/bugs/1")
    assert "Bug 1 cannot be merged into itself." in person.send("/bugs/1/merge", into="1").text


@ON_BOTH
def test_bugs_are_labelled_and_a_click_on_a_label_finds_the_others(served: Served) -> None:
    filled(served.index)
    index, person = served.index, Person(served)
    person.open("/bugs/2")
    assert "Its labels were changed." in person.send("/bugs/2/labels", add="P1, needs-owner  p1").text
    assert (person.path, index.bugs.get(2).labels) == ("/bugs/2?done=labelled", ("needs-owner", "p1"))
    index.triage.label(1, add=["p1", "a+b"])

    def links() -> list[str]:
        return [str(given["href"]) for tag, given in person.page.elements if given.get("class") == "label"]

    assert links() == ["/bugs?status=all&label=needs-owner", "/bugs?status=all&label=p1"]
    assert sorted(lines(person.open(links()[1]))) == ["/bugs/1", "/bugs/2"]
    person.open("/bugs?order=new&label=p1")
    first, *_, last = links()
    assert (first, last) == ("/bugs?order=new&label=needs-owner", "/bugs?order=new&label=p1")
    assert lines(person.open("/bugs?order=new&label=a%2Bb")) == ["/bugs/1"]
    assert "No bug is like that." in person.open("/bugs?label=two+words").text
    add(index, None, failing("cannot store"), reason="node 'f' has no name", graph_text="f(x)")  # it has no backend
    chosen = [given["value"] for tag, given in person.open("/bugs?label=p1").elements if "selected" in given]
    assert chosen == ["", "", "", "open", "p1", "seen"]
    assert "comes with bug 2." in person.open("/bugs/2/merge?into=1").text
    person.open("/bugs/2")
    person.send("/bugs/2/labels", remove="p1")
    assert index.bugs.get(2).labels == ("needs-owner",)
    for wrong, sentence in {"-x": "A label has 1 to 50 characters", "": "Name labels to add"}.items():
        person.open("/bugs/2")
        assert sentence in person.send("/bugs/2/labels", add=wrong).text
        assert person.answer.status == 422
    index.triage.merge(2, 1)
    assert "/bugs/2/labels" not in "".join(person.open("/bugs/2").forms)


def test_tasks_and_workers_are_shown_cancelled_and_queued_again(person: Person) -> None:
    index = person.served.index
    can = {"backend=planted", "torch=2.13", "trust"}
    worker = index.tasks.join("gpu-3", can)
    claimed = index.tasks.claim(worker, can)
    assert claimed is not None
    index.tasks.sweep(can)
    page = person.open("/tasks")
    assert "needs an environment: no worker has backend=other" in page.text
    assert "leased" in page.text
    assert " by gpu-3" in page.text
    assert "open 4" in page.text  # the first bug has a script, and is to be explained
    page = person.send("/tasks/3/cancel")
    assert (index.tasks.get(3).state, "The task was cancelled." in page.text) == (TaskState.CANCELLED, True)
    person.open("/tasks?state=cancelled")
    person.send("/tasks/3/retry")
    assert (index.tasks.get(3).state, person.path) == (TaskState.QUEUED, "/tasks?state=cancelled&done=queued")
    page = person.open("/workers")
    assert f"gpu-3 process {os.getpid()} bug {claimed.bug} backend=planted torch=2.13 trust" in page.text


def test_every_page_asks_for_a_token_and_for_its_scope(closed: Served) -> None:
    tokens = {scope: closed.index.tokens.new(scope, [scope]) for scope in TokenScope}
    sessions = {scope: closed.index.sessions.begin(info) for scope, (info, _) in tokens.items()}
    read = sessions[TokenScope.READ]
    assert {scopes for _, _, scopes in PAGES} == {("open",), ("read",), ("triage",), ("work",)}
    assert len(PAGES) == 20
    before = closed.index.events.last()
    for method, path, needed in PAGES:
        address = path + QUERIES.get(path, "") if method == "GET" else path
        for wrong in ("", "fxs_1_" + "x" * 43, "x", read[:-1], tokens[TokenScope.READ][1]):
            sent = {"Cookie": f"fxminify-session={wrong}"} if wrong else {}
            answer = closed.ask(method, address, b"" if method == "POST" else None, Accept="text/html", **sent)
            if needed != ("open",):
                assert answer.status == 401, (method, path, wrong)
                assert b"no sin" not in answer.body
                assert 'action="/sign-in"' in answer.body.decode()
        for scope, session in sessions.items():
            cookie = {"Cookie": f"fxminify-session={session}"}
            answer = closed.ask(method, address, b"" if method == "POST" else None, Accept="text/html", **cookie)
            allowed = needed == ("open",) or scope in needed or scope is TokenScope.ADMIN
            if method == "POST":  # it has no key
                assert answer.status == 403, (path, scope)
                assert (b"lacks the scope" in answer.body) is not allowed, (path, scope)
            else:
                assert (answer.status == 403) is not allowed, (path, scope, answer.status)
    assert closed.index.events.last() == before


@pytest.mark.parametrize(
    ("headers", "key", "status"),
    [
        ({}, True, 303),
        ({"Origin": "http://127.0.0.1:{port}"}, True, 303),
        ({"Origin": "https://127.0.0.1:{port}"}, True, 303),  # a proxy has ended https
        ({"Sec_Fetch_Site": "same-origin"}, True, 303),
        ({}, False, 403),
        ({"Origin": "https://evil.example"}, True, 403),
        ({"Origin": "http://127.0.0.1:1"}, True, 403),
        ({"Origin": "null"}, True, 403),
        ({"Sec_Fetch_Site": "cross-site"}, True, 403),
        ({"Sec_Fetch_Site": "same-site"}, True, 403),
        ({"Host": "evil.example"}, True, 401),
    ],
)
def test_a_form_is_taken_from_a_page_of_ours_only(
    person: Person, headers: dict[str, str], key: bool, status: int
) -> None:
    person.open("/bugs/1")
    right = next(form["key"] for name, form in person.page.forms.items() if name.startswith("post /bugs/1/status"))
    sent = {name: value.format(port=person.served.port) for name, value in headers.items()}
    body = urlencode({"key": right if key else "0" * 64, "status": "ignored"}).encode()
    answer = person.served.ask("POST", "/bugs/1/status", body, **sent)
    assert answer.status == status
    assert (person.served.index.bugs.get(1).status is BugStatus.IGNORED) is (status == 303)


def test_the_key_of_one_person_is_none_of_another(closed: Served) -> None:
    people = []
    for name in ("ann", "ben"):
        person = Person(closed)
        person.open("/bugs/2")
        person.send("/sign-in", token=closed.index.tokens.new(name, [TokenScope.READ, TokenScope.TRIAGE])[1])
        assert (person.path, name in person.page.text) == ("/bugs/2", True)
        people.append(person)
    ann, ben = people
    key = ben.page.forms["post /bugs/2/status 2"]["key"]
    assert "was not made for this browser" in ann.send("/bugs/2/status", key=key).text
    ann.open("/bugs/2")
    ann.send("/bugs/2/status", status="ignored")
    (event,) = [event for event in closed.index.events.after(0, limit=99) if event.kind == "bug"]
    assert (event.actor, event.text) == ("ann", "ignored")


def test_a_person_signs_in_and_out(closed: Served) -> None:
    info, text = closed.index.tokens.new("ann", [TokenScope.READ])
    submit = closed.index.tokens.new("ci", [TokenScope.SUBMIT])[1]
    person = Person(closed)
    page = person.open("/bugs?q=no+cos&order=new")
    assert (person.answer.status, lines(page)) == (401, [])
    assert "This token is not known here, or was revoked." in person.send("/sign-in", token=text[:-1]).text
    assert person.answer.status == 401
    assert "it lacks the scope read" in person.send("/sign-in", token=submit).text
    assert person.cookies == {}
    page = person.send("/sign-in", token=f" {text} ")
    assert (person.path, lines(page)) == ("/bugs?q=no+cos&order=new", ["/bugs/2"])
    (session,) = person.cookies.values()
    assert person.cookies == {"fxminify-session": session}
    assert text not in session
    assert "Minify again" not in person.open("/bugs/2").text  # a form that would be refused is not shown
    cookie = {"Cookie": f"fxminify-session={session}"}
    assert closed.get("/events?seconds=0", **cookie).status == 200
    assert closed.post("/bugs/2/reduce", **cookie).status == 401  # the interface takes no cookie for what changes
    assert replace(closed, token=session).get("/bugs").status == 401  # a session is no token
    write = closed.index.database.write
    write(lambda index: index.connection().exec_driver_sql("CREATE TABLE kept AS SELECT * FROM sessions"))
    assert (person.send("/sign-out").text, person.cookies) == (person.page.text, {})
    assert closed.get("/events?seconds=0", **cookie).status == 401  # it is over, whoever has kept its id
    write(lambda index: index.connection().exec_driver_sql("INSERT INTO sessions SELECT * FROM kept"))
    assert closed.get("/events?seconds=0", **cookie).status == 401  # also if a person puts its row back
    assert person.open("/bugs").forms.keys() == {"post /sign-in 0"}
    person.send("/sign-in", token=text)
    closed.index.tokens.revoke(info.id)
    person.open("/bugs")
    assert person.answer.status == 401


def test_a_session_is_worth_nothing_on_another_server_after_its_time_and_where_it_was_planted(
    closed: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, _ = closed.index.tokens.new("ann", [TokenScope.READ])
    sessions = closed.index.sessions
    first, second = sessions.begin(info), sessions.begin(info)
    assert [found and found.name for found in sessions.check_all([first, second, first[:-1], ""])] == [
        "ann", "ann", None, None,
    ]  # fmt: skip

    def change(statement: str) -> None:
        closed.index.database.write(lambda session: session.connection().exec_driver_sql(statement))

    change("UPDATE sessions SET proof = (SELECT proof FROM sessions WHERE id = 2) WHERE id = 1")
    assert [found is not None for found in sessions.check_all([first, second])] == [False, True]
    change("UPDATE sessions SET until = until + 1")
    assert sessions.check_all([second]) == [None]
    third = sessions.begin(info)
    with monkeypatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path / "of another server"))
        assert sessions.check_all([third]) == [None]
    assert sessions.check_all([third]) != [None]
    later = time.time() + LASTS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert sessions.check_all([third]) == [None]


def test_the_cookie_is_for_this_server_and_for_no_script(closed: Served) -> None:
    text = closed.index.tokens.new("ann", [TokenScope.READ])[1]
    person = Person(closed)
    key = person.open("/sign-in").forms["post /sign-in 0"]["key"]

    def cookie(**headers: str) -> list[str]:
        body = urlencode({"key": key, "token": text, "back": "/bugs"}).encode()
        answer = closed.ask("POST", "/sign-in", body, **headers)
        assert answer.status == 303, answer.body
        return sorted(part.strip().lower() for part in answer.headers["set-cookie"].split(";"))[1:]

    attributes = ["httponly", "max-age=604800", "path=/", "samesite=lax"]
    assert cookie(Origin=closed.url) == attributes
    assert cookie(Origin=closed.url.replace("http:", "https:")) == [*attributes, "secure"]


@pytest.mark.parametrize(
    "back", ["https://evil.example", "//evil.example", "/\\evil.example", "/\t/evil.example", "javascript:alert(1)", ""]
)
def test_signing_in_leads_to_no_other_site(closed: Served, back: str) -> None:
    person = Person(closed)
    person.open("/sign-in")
    text = closed.index.tokens.new("ann", [TokenScope.READ])[1]
    person.send("/sign-in", token=text, back=back)
    assert person.path == "/bugs"


def test_pages_run_and_load_nothing_but_their_own(person: Person) -> None:
    paths = ("/bugs", "/bugs/1", "/captures/1", "/tasks", "/workers", "/sign-in", "/nowhere", "/bugs/1/merge?into=2")
    for path in paths:
        elements = person.open(path).elements
        text, headers = person.answer.body.decode(), person.answer.headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        for tag in ("style", "script"):
            (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert policy.pop(f"{tag}-src") == f"'sha256-{digest}'"
        assert policy == {
            "default-src": "'none'", "img-src": "data:", "connect-src": "'self'", "form-action": "'self'",
            "base-uri": "'none'", "frame-ancestors": "'none'",
        }  # fmt: skip
        others = ("x-content-type-options", "cache-control", "referrer-policy")
        assert [headers[name] for name in others] == ["nosniff", "no-store", "same-origin"]
        assert {tag for tag, _ in elements} & {"link", "iframe", "object", "embed", "base"} == set()
        assert [given for _, given in elements if given.keys() & {"src", "srcset", "style"}] == []
        assert [name for _, given in elements for name in given if name.startswith("on")] == []
        assert re.findall(r"https?://", text) == []


def test_nothing_of_a_capture_becomes_markup(served: Served) -> None:
    index = served.index

    def meet(text: str) -> int:
        failure = Failure(
            FailureKind.RUNTIME_ERROR, Phase.FORWARD, f"Error{text}", text, ((f"Cause{text}", text),),
            (Frame(text, text, 3),), diagnostics=text,
        )  # fmt: skip
        case = chain(["sin", "cos"])
        backend = {**case.backend, "name": f"b{text}", "options": {"dict": [[text, text]]}}
        id = add(index, replace(case, backend=backend), failure, provenance={"torch": text, text: text})
        minify(index, id, chain(["cos"]), script=f'"""{text}"""\n{text}')
        index.captures.set_state(id, State.VERIFIED, text)
        return id

    harmless, person = meet("harmless"), Person(served)

    def addresses(id: int) -> list[str]:
        bug = index.captures.get(id).bug
        return [f"/bugs/{bug}", f"/bugs/{bug}?format=issue", f"/captures/{id}"]

    wanted = [{(tag, *sorted(given)) for tag, given in person.open(path).elements} for path in addresses(harmless)]
    for text in HOSTILE:
        for path, known in zip(addresses(meet(text)), wanted, strict=True):
            page = person.open(path)
            assert person.answer.status == 200
            assert [c for c in "\0\x1b\u202e" if c in person.answer.body.decode()] == []
            found = {(tag, *sorted(given)) for tag, given in page.elements}
            assert found - known <= {("span", "class")}, (path, text)
    page = person.open("/bugs?status=all")
    assert [text for text in HOSTILE if text.partition("\x1b")[0] not in page.text] == []
    page = person.open(f"/bugs?{urlencode({'q': HOSTILE[0], 'backend': HOSTILE[2]})}")
    assert [given["value"] for _, given in page.elements if given.get("id") == "search"] == [HOSTILE[0]]
    for path in ("/tasks", f"/bugs?{urlencode({'kind': HOSTILE[0]})}", f"/{HOSTILE[1]}".replace(" ", "%20")):
        person.open(path)
        assert b"<script>alert" not in person.answer.body
        assert b"onerror" not in person.answer.body.replace(b"onerror=alert(1)&gt;", b"")


def test_a_bug_that_cannot_be_read_spoils_no_list(person: Person) -> None:
    with person.served.index.database.writing() as session:
        session.connection().exec_driver_sql("UPDATE captures SET state = 'odd' WHERE id = 2")
    assert "cannot be read" in person.open("/bugs").text
    assert len(lines(person.page)) == 3
    assert person.open("/bugs/2").elements
    assert person.answer.status == 500
    assert str(person.served.folder.parent) not in person.page.text


def test_a_full_disk_is_said_and_changes_nothing(place: str, tmp_path: Path) -> None:
    with serving(place, tmp_path / "uploads", replace(OPTIONS, least=1 << 60)) as served:
        filled(served.index)
        person = Person(served)
        assert "No space is left for captures" in person.open("/bugs/1").text
        assert "No space is left" in person.send("/bugs/1/status").text
        assert person.answer.status == 503


NO_TORCH = """
import sys
from pathlib import Path
from serving import serving
with serving(sys.argv[1], Path(sys.argv[2])) as served:
    for path in ("/bugs", "/bugs/1", "/bugs/1?format=pytest", "/bugs/1?format=notebook", "/captures/1", "/captures/2",
                 "/tasks?state=all", "/workers", "/api/v1/bugs"):
        answer = served.ask("GET", path, Accept="text/html")
        assert answer.status == 200, answer.body
assert "torch" not in sys.modules, "torch was imported"
"""


def test_a_server_imports_no_torch(tmp_path: Path) -> None:
    indexes.small(tmp_path / "repro.db")
    shared = str(Path(indexes.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({json.dumps(shared)}){NO_TORCH}",
         str(tmp_path / "repro.db"), str(tmp_path / "uploads")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
