"""The one gate before anything of a capture runs: `may_run`.

What this user made runs without a question. Anything else runs only with ``--trust``, or after a person agreed to a
question that lists all that running it executes. The gate returns an `AgreedCase`, and everything that runs a capture
takes one. It holds what was proved or shown, so what runs is that, whatever the index says by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from ..backends.provenance import access, libraries
from ..backends.provenance.access import Access
from ..backends.provenance.spec import BackendSpec
from ..backends.running import ambient
from ..store.document.case import Case
from ..store.document.recreation import CONTROL
from ..store.errors import UnreadableRow
from ..store.index import StoredCase, StoredScript
from ..store.text import printable

#: Puts a question to a person: True where the answer is yes.
Confirm = Callable[[str], bool]
#: Why a capture was not run.
NOT_TRUSTED = "not run: it was captured elsewhere, and was not trusted (--trust)"


#: Takes a sentence for the person at the terminal.
Tell = Callable[[str], None]


@final
@dataclass(frozen=True, slots=True, init=False)
class AgreedCase:
    """A case of the capture ``id`` that may run here, or with ``script`` that script of it. Only `may_run` makes one.

    ``ours``: this user made all of it, so what is made of it is signed as theirs. ``access`` is what workers that run
    it get of this user.
    """

    id: int
    case: Case
    script: str
    ours: bool
    access: Access


def refuse(question: str) -> bool:
    """Answer no, where there is no person to ask."""
    return False


def silent(sentence: str) -> None:
    """Say nothing."""


def may_run(
    id: int,
    stored: StoredCase,
    *,
    script: StoredScript | None = None,
    trust: bool = False,
    confirm: Confirm = refuse,
    sandbox: bool = False,
    tell: Tell = silent,
) -> AgreedCase | None:
    """Return the parts of capture ``id`` that may run, its case or its ``script``; else None.

    With ``sandbox`` the question lists the directories of this machine that the case can read. ``tell`` is called with
    them if no question is needed. Raises `fxminify.backends.provenance.spec.InvalidSpec` if its backend cannot be
    read, and `UnreadableRow` if the script of somebody else has a control character.
    """
    text = "" if script is None else script.text
    spec = BackendSpec.from_json(stored.case.backend)
    given, visible = access.variables(spec, text), _visible(stored.case, text) if sandbox else {}
    asked = _question(id, stored.case, spec, text, given, visible)
    ours = stored.ours and (script is None or script.ours)
    if not ours and CONTROL.search(text):
        raise UnreadableRow(f"the script of capture {id} has a control character, which may hide what it runs: not run")
    if not (ours or trust):
        if not confirm(asked):
            return None
    elif visible:
        tell(f"capture {id} {_reads(visible)}")
    agreed = object.__new__(AgreedCase)
    gets = Access(None if ours and not sandbox else given, tuple(visible))
    for name, value in {"id": id, "case": stored.case, "script": text, "ours": ours, "access": gets}.items():
        object.__setattr__(agreed, name, value)
    return agreed


def _visible(case: Case, script: str) -> dict[str, str]:
    """The directories that come back in a sandbox, each with what lies there."""
    found = access.of_case(case.backend, case.imports)
    if not script:
        return found
    paths = [*case.backend.get("search_path", ()), *(p for item in case.imports for p in item.get("search_path", ()))]
    return found | access.of_script(script, paths)


def _reads(visible: Mapping[str, str]) -> str:
    places = ", ".join(f"{printable(place, other='·')} (for {name})" for place, name in visible.items())
    return f"reads in the sandbox: {places}"


def question(id: int, case: Case, *, script: str = "") -> str:
    """List all that running ``case``, or its stored ``script``, executes, and ask whether to run it."""
    spec = BackendSpec.from_json(case.backend)
    return _question(id, case, spec, script, access.variables(spec, script), {})


def _question(
    id: int, case: Case, spec: BackendSpec, script: str, given: Sequence[str], visible: Mapping[str, str]
) -> str:
    """Each thing is one line, whatever characters the file has in it."""
    lines = [*libraries.executes(case.imports), *spec.executes()]
    if visible:
        lines.append(_reads(visible))
    if given:
        lines.append(f"gives it these environment variables of yours, as far as they are set: {', '.join(given)}")
    settings = ambient.to_source(case.context)
    if stated := [*settings.setup, *(f"with {manager}" for manager in settings.managers)]:
        lines += ["states, before it calls the backend:", *(f"| {line}" for line in stated)]
    if script:
        lines += ["runs the stored script instead of the case:", *(f"| {line}" for line in script.split("\n"))]
    listed = "\n".join(f"  {'' if line.startswith('| ') else '- '}{printable(line, other='·')}" for line in lines)
    return f"Capture {id} was not made here. Running it\n{listed}\nRun it?"
