"""The one gate before anything of a capture runs: `may_run`.

What this user made runs without a question. Anything else runs only with ``--trust``, or after a person agreed to a
question that lists all that running it executes. The gate returns an `AgreedCase`, and everything that runs a capture
takes one. It holds what was proved or shown, so what runs is that, whatever the index says by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from ..backends.provenance import libraries, variables
from ..backends.provenance.spec import BackendSpec
from ..backends.running import ambient
from ..store.document.case import Case
from ..store.index import StoredCase, StoredScript
from ..store.text import printable

#: Puts a question to a person: True where the answer is yes.
Confirm = Callable[[str], bool]
#: Why a capture was not run.
NOT_TRUSTED = "not run: it was captured elsewhere, and was not trusted (--trust)"


@final
@dataclass(frozen=True, slots=True, init=False)
class AgreedCase:
    """A case of the capture ``id`` that may run here, or with ``script`` that script of it. Only `may_run` makes one.

    ``ours``: this user made all of it, so what is made of it is signed as theirs.
    """

    id: int
    case: Case
    script: str
    ours: bool


def refuse(question: str) -> bool:
    """The answer where nobody can be asked."""
    return False


def may_run(
    id: int,
    stored: StoredCase,
    *,
    script: StoredScript | None = None,
    trust: bool = False,
    confirm: Confirm = refuse,
) -> AgreedCase | None:
    """Return what was read of the capture ``id``, its case or its ``script``, as something that may run; else None.

    Raises `fxminify.backends.provenance.spec.InvalidSpec` where its backend cannot be read.
    """
    text = "" if script is None else script.text
    asked = question(id, stored.case, script=text)
    ours = stored.ours and (script is None or script.ours)
    if not (ours or trust or confirm(asked)):
        return None
    agreed = object.__new__(AgreedCase)
    for name, value in {"id": id, "case": stored.case, "script": text, "ours": ours}.items():
        object.__setattr__(agreed, name, value)
    return agreed


def question(id: int, case: Case, *, script: str = "") -> str:
    """List all that running ``case``, or its stored ``script``, executes, and ask whether to run it.

    Each thing is one line, whatever characters the file has in it.
    """
    spec = BackendSpec.from_json(case.backend)
    lines = [*libraries.executes(case.imports), *spec.executes()]
    if read := sorted({*spec.variables, *(variables.named(script) if script else ())} - {*spec.environment}):
        lines.append(f"gives it these environment variables of yours, as far as they are set: {', '.join(read)}")
    settings = ambient.to_source(case.context)
    if stated := [*settings.setup, *(f"with {manager}" for manager in settings.managers)]:
        lines += ["states, before it calls the backend:", *(f"| {line}" for line in stated)]
    if script:
        lines += ["runs the stored script instead of the case:", *(f"| {line}" for line in script.split("\n"))]
    listed = "\n".join(f"  {'' if line.startswith('| ') else '- '}{printable(line, other='·')}" for line in lines)
    return f"Capture {id} was not made here. Running it\n{listed}\nRun it?"
