"""The targets of notifications: a command, a webhook, or the issues of a GitHub repository.

A file in TOML names them::

    page = "https://failures.example.com"     # where `minify serve` answers, for links

    [team]
    url = "https://hooks.example.com/fxminify"
    token_variable = "HOOK_TOKEN"

    [pager]
    command = ["pager", "--urgent"]
    events = ["regressed"]

    [issues]
    github = "owner/repository"
    token_variable = "GITHUB_TOKEN"

Tokens are in environment variables, never in the file or in the index.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import subprocess
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ... import __version__
from ...minifier.sandbox.processes import kill_tree
from ...store import codec
from ...store.index.deliveries import PER_DAY, WHATS
from ...store.spool.sender import NoRedirect
from ...store.spool.spool import is_loopback

#: The events of a target whose table names none.
USUAL = ("verified", "fixed", "regressed")
#: Seconds that a target may take.
TIMEOUT = 60.0
_MB = 1 << 20
_NAME = re.compile(r"[\w.-]{1,50}\Z", re.ASCII)
#: Answers of a server that the same message gets again.
_FINAL = (400, 410, 413, 415, 422)


class BadTargets(Exception):
    """The file with the targets cannot be used. The message is for the user."""


class NotSent(Exception):
    """A notification was not sent. ``later``: it may be tried again."""

    def __init__(self, why: str, *, later: bool = True) -> None:
        super().__init__(why)
        self.later = later


class MaybeSent(Exception):
    """A target gave no answer, so it may or may not have received the notification."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification. ``marks`` identify it at a target that can be asked whether it received it."""

    title: str
    text: str
    marks: tuple[str, ...]
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """A target: a table of the file. Exactly one of ``command``, ``url`` and ``github`` is set."""

    name: str = ""
    command: tuple[str, ...] = ()
    url: str = ""
    github: str = ""
    api: str = "https://api.github.com"
    labels: tuple[str, ...] = ()
    token_variable: str = ""
    events: tuple[str, ...] = USUAL
    per_day: int = PER_DAY

    @property
    def can_be_asked(self) -> bool:
        return bool(self.github)

    def tell(self, notice: Notice, *, key: str, before: str, doubtful: bool) -> str:
        """Tell it. Returns what it answered.

        ``key`` is the same for a message that is sent again, ``before`` the answer to the first message about the bug.
        A ``doubtful`` message may have come already. Raises `NotSent` and `MaybeSent`.
        """
        if self.command:
            return _run(self.command, notice)
        if self.url:
            _ask(self.url, self._token(), notice.content, {"Idempotency-Key": key})
            return ""
        return self._issue(notice, before, doubtful=doubtful)

    def _token(self) -> str:
        token = os.environ.get(self.token_variable, "") if self.token_variable else ""
        if self.token_variable and not token:
            raise NotSent(f"the variable {self.token_variable}, which has the token, is not set")
        return token

    def _issue(self, notice: Notice, before: str, *, doubtful: bool) -> str:
        """Open an issue, or add a comment to the one about the same bug. Returns the address of the issue."""
        token, base = self._token(), f"{self.api.rstrip('/')}/repos/{self.github}/issues"
        number = before.rpartition("/")[2]
        text = "\n".join([notice.text, *(f"<!-- {mark} -->" for mark in notice.marks)])
        if number.isdecimal():
            known = _ask(f"{base}/{number}/comments?per_page=100", token) if doubtful else []
            if not _has(known, notice.marks):
                _ask(f"{base}/{number}/comments", token, {"body": text})
            return before
        newest = f"{base}?state=all&sort=created&direction=desc&per_page=100"
        if doubtful and (found := _has(_ask(newest, token), notice.marks)):
            return str(found.get("html_url", ""))
        made = _ask(base, token, {"title": notice.title, "body": text, "labels": list(self.labels)})
        return str(made.get("html_url", "")) if isinstance(made, dict) else ""


def read(path: Path) -> tuple[list[Target], str]:
    """The targets in a file, and the address of the pages. Raises `BadTargets`."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadTargets(f"{path} cannot be read: {error}") from error
    page = found.pop("page", "")
    if not isinstance(page, str):
        raise BadTargets(f"{path}: page is an address")
    known = [field.name for field in fields(Target) if field.name != "name"]
    targets = []
    for name, table in found.items():
        where = f"{path}: [{name}]"
        if not isinstance(table, dict) or not _NAME.match(name):
            raise BadTargets(f"{where} is no table with a simple name")
        if unknown := [key for key in table if key not in known]:
            raise BadTargets(f"{where} has no setting {unknown[0]}; it has {', '.join(known)}")
        try:
            target = codec.load({**table, "name": name}, Target)
        except ValueError as error:
            raise BadTargets(f"{where}: {error}") from error
        if problem := _problem(target):
            raise BadTargets(f"{where} {problem}")
        targets.append(target)
    if not targets:
        raise BadTargets(f"{path} names no target")
    return targets, page.rstrip("/")


def _problem(target: Target) -> str:
    if sum(map(bool, (target.command, target.url, target.github))) != 1:
        return "needs one of command, url and github"
    for address in filter(None, (target.url, target.api)):
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return f"names {address!r}, which is no http address"
        if target.token_variable and parts.scheme == "http" and not is_loopback(parts.hostname):
            return f"would send its token unencrypted to {address}"
    if target.github and not re.fullmatch(r"[\w.-]+/[\w.-]+", target.github, re.ASCII):
        return 'names github = "owner/repository"'
    if unknown := [one for one in target.events if one not in WHATS]:
        return f"names the event {unknown[0]!r}; there are {', '.join(WHATS)}"
    return "" if target.per_day > 0 else "gets no message, with per_day below 1"


def _run(command: Sequence[str], notice: Notice) -> str:
    """Run a command with the message as JSON on its standard input. Its exit code says whether it worked."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NotSent(f"{command[0]} cannot be run: {error.strerror}") from error
    try:
        said, _ = process.communicate(json.dumps(notice.content), TIMEOUT)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        process.communicate()
        raise MaybeSent(f"{command[0]} did not end within {TIMEOUT:.0f} s") from None
    last = (said.strip().splitlines() or [""])[-1][:500]
    if process.returncode:
        raise NotSent(f"{command[0]} ended with exit code {process.returncode}{f': {last}' * bool(last)}")
    return ""


def _ask(url: str, token: str, content: Mapping[str, Any] | None = None, more: Mapping[str, str] | None = None) -> Any:
    """GET, or POST of ``content``. Returns the answer if it is JSON."""
    headers = {"User-Agent": f"fxminify/{__version__}", "Accept": "application/json", **(more or {})}
    body = None
    if content is not None:
        body, headers["Content-Type"] = json.dumps(content).encode(), "application/json"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    opener = urllib.request.build_opener(NoRedirect, urllib.request.HTTPSHandler(context=ssl.create_default_context()))
    request = urllib.request.Request(url, body, headers)
    host = urlsplit(url).hostname
    try:
        with opener.open(request, timeout=TIMEOUT) as response:
            text = response.read(_MB)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(500).decode("utf-8", "replace").strip().replace("\n", " ")
        raise NotSent(f"{host} answers {error.code}: {said}"[:600], later=error.code not in _FINAL) from None
    except urllib.error.URLError as error:  # nothing was sent, or the connection broke while it was
        sent = isinstance(error.reason, TimeoutError | ConnectionResetError | BrokenPipeError)
        raise (MaybeSent if sent else NotSent)(f"{host} does not answer: {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise MaybeSent(f"{host} gave no answer: {error}") from error
    try:
        return json.loads(text)
    except ValueError:
        return None


def _has(rows: Any, marks: Sequence[str]) -> dict[str, Any]:
    """Return the first of these issues or comments whose text has the first mark, or an empty dictionary."""
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and f"<!-- {marks[0]} -->" in str(row.get("body")):
            return row
    return {}
