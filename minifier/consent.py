"""What running a capture from elsewhere executes, as a question for a person.

Captures made by this user's own installation run without a question. Others run only with `--trust`, or after somebody
agreed to this question.
"""

from __future__ import annotations

from collections.abc import Callable

from ..backends.provenance import libraries, variables
from ..backends.provenance.spec import BackendSpec
from ..backends.running import ambient
from ..store.document.case import Case
from ..store.index import CaptureInfo
from ..store.text import printable

#: Puts a question to a person: True where the answer is yes.
Confirm = Callable[[str], bool]


def refuse(question: str) -> bool:
    """The answer where nobody can be asked."""
    return False


def question(capture: CaptureInfo, case: Case, *, script: str = "") -> str:
    """Lists all that running ``case``, or its stored ``script``, executes, and asks whether to run it.

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
    return f"Capture {capture.id} was not made here. Running it\n{listed}\nRun it?"
