"""The exit codes and the JSON of every verb, as a table: docs/answers.md is written from it, and tests compare it with
what the verbs print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType

from ..reporting.report import CaptureReport

#: Exit codes of all verbs.
DONE, ERROR = 0, 2
COMMON: Mapping[int, str] = MappingProxyType({
    DONE: "done",
    ERROR: "an error; with `--json` an object with `error`, `hint` and `command`",
    129: "ended by SIGHUP",
    130: "interrupted by Ctrl-C",
    143: "ended by SIGTERM",
})  # fmt: skip
#: The fields of an error in JSON.
ERROR_FIELDS: Mapping[str, str] = MappingProxyType({
    "error": "what happened, one sentence",
    "hint": "what to do about it",
    "command": "the next command: the one that the hint names, the same one with a flag, or the help of the verb",
})  # fmt: skip
_CAPTURE = (
    "id", "bug", "parent", "state", "kind", "phase", "backend", "signature", "occurrences", "nodes_before",
    "nodes_after", "inputs_before", "inputs_after", "operators", "comes_from", "queries", "verified", "runs",
    "headline", "reason", "created", "last_seen", "failure", "provenance", "graph_text", "problem",
)  # fmt: skip
#: The report of a capture, docs/report.md.
_REPORT = tuple(each.name for each in fields(CaptureReport))


class Form(StrEnum):
    """The form of the JSON of a verb."""

    OBJECT = "an object"
    LIST = "a list of objects"
    LINES = "an object in each line, as it happens"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class VerbAnswer:
    """The JSON of a verb, whose objects have these ``fields``.

    ``sometimes`` are fields that only some answers have, ``codes`` the exit codes besides `COMMON`; -1 is any code.
    """

    form: Form
    fields: tuple[str, ...]
    sometimes: tuple[str, ...] = ()
    codes: Mapping[int, str] = field(default_factory=dict)


_NO_SCRIPT = {1: "a failure has no verified script"}
_PROGRAM = ("exit_code", "captured")
#: One row for each verb, in the order of ``minify --help``.
ANSWERS: Mapping[str, VerbAnswer] = MappingProxyType({
    "catch": VerbAnswer(Form.OBJECT, _PROGRAM, codes={1: "a backend failed; otherwise the exit code of the program"}),
    "capture": VerbAnswer(Form.OBJECT, _PROGRAM, codes={
        -1: "the exit code of the program; 128 + N if signal N ended it",
    }),
    "bisect": VerbAnswer(
        Form.OBJECT, ("graphs", "runs", "seconds", "found", "reason", "log", "captured"), (),
        {1: "no graph makes the program fail; `reason` says why"},
    ),
    "hunt": VerbAnswer(
        Form.OBJECT, ("backend", "versions", "stopped", "totals", "new", "unseen", "bugs", "cells", "db", "log"), (),
        {1: "a program fails that `--expect` does not list", 3: "no program could be judged"},
    ),
    "import": VerbAnswer(
        Form.OBJECT, ("captured", "tried"), (), {1: "a file shows no failure, or it could not be stored"}
    ),
    "run": VerbAnswer(Form.LIST, _CAPTURE, ("standing",), _NO_SCRIPT),
    "list": VerbAnswer(Form.LIST, _CAPTURE, ("standing",)),
    "show": VerbAnswer(Form.OBJECT, _REPORT),
    "history": VerbAnswer(Form.OBJECT, ("reduction", "config", "start_nodes", "steps", "passes", "unconfirmed")),
    "repro": VerbAnswer(Form.OBJECT, ("id", "format", "verified", "runs", "signature", "tentative", "text", "files")),
    "report": VerbAnswer(Form.OBJECT, (), (
        "output", "bytes", "failures", "bugs", "in_full", "bundle", "fxminify", "capture", "files", "left_out",
        "what_is_inside",
    )),
    "export": VerbAnswer(Form.OBJECT, (
        "output", "captures", "rows", "bytes", "found", "unreadable", "left_out", "looked_for",
    )),
    "verify": VerbAnswer(Form.LIST, ("shown", "runs", "signature", "mismatch", "cannot_run"), ("id", "file"), {
        1: "a script does not show its failure", 3: "a script cannot run here",
    }),
    "retest": VerbAnswer(Form.LIST, ("id", "signature", "kind", "backend", "result", "as_expected", "message"), (
        "shown", "runs", "seconds", "versions", "at", "other_signature", "since", "changed", "standing", "first_seen",
    ), {1: "a result is not as expected", 3: "a script cannot run here, or nothing was run"}),
    "ablate": VerbAnswer(Form.OBJECT, ("rows", "enters", "torch", "reduction")),
    "explain": VerbAnswer(Form.OBJECT, _REPORT),
    "work": VerbAnswer(Form.LINES, ("at", "event", "text"), ("task", "bug", "capture")),
    "tasks": VerbAnswer(Form.LIST, (
        "id", "bug", "capture", "kind", "config", "budget", "priority", "state", "attempts", "needs", "worker", "why",
        "fence", "until", "created", "started", "finished",
    )),
    "serve": VerbAnswer(Form.NONE, ()),
    "tokens": VerbAnswer(Form.LIST, ("id", "name", "scopes", "created", "revoked", "proved", "problem"), ("token",)),
    "notify": VerbAnswer(Form.LIST, (
        "id", "target", "what", "bug", "text", "state", "attempts", "message", "answer", "created",
    )),
    "send": VerbAnswer(Form.LIST, ("server", "sent", "counted", "left", "refused", "why", "unwanted"), codes={
        1: "a capture still waits, or the server refused it",
    }),
    "mcp": VerbAnswer(Form.NONE, ()),
    "gc": VerbAnswer(Form.OBJECT, ("captures", "bugs", "storages"), ("values", "bytes")),
    "copy": VerbAnswer(Form.OBJECT, ("rows",)),
    "upgrade": VerbAnswer(Form.OBJECT, ("backup",)),
    "doctor": VerbAnswer(Form.LIST, ("check", "found", "ok"), ("advice",), {1: "a check failed"}),
    "backends": VerbAnswer(Form.LIST, (
        "name", "adapter", "distribution", "needs", "origin", "problem", "recreatable", "tags",
    ), ("test",)),
    "passes": VerbAnswer(Form.LIST, ("pass", "stage", "what", "from")),
    "formats": VerbAnswer(Form.OBJECT, ("formats", "broken")),
})  # fmt: skip
