"""What running a capture from elsewhere executes, as a question for a person.

Captures made by this user's own installation run without a question. Others run only with `--trust`, or after somebody
agreed to this question.
"""

from __future__ import annotations

from collections.abc import Callable

from ..backends.provenance import libraries
from ..backends.provenance.spec import BackendSpec
from ..store.document.case import Case
from ..store.index import CaptureInfo
from .printable import printable

#: Puts a question to a person: True where the answer is yes.
Confirm = Callable[[str], bool]


def refuse(question: str) -> bool:
    """The answer where nobody can be asked."""
    return False


def question(capture: CaptureInfo, case: Case, *, script: str = "") -> str:
    """Lists what running ``case``, or its stored ``script``, executes, and asks whether to run it."""
    lines = [*BackendSpec.from_json(case.backend).executes(), *libraries.executes(case.imports)]
    lines += [f"runs the stored script, {len(script.splitlines())} lines: minify repro prints it"] if script else []
    listed = "\n".join(f"  - {printable(line, 200)}" for line in lines)
    return f"Capture {capture.id} was not made here. Running it\n{listed}\nRun it?"
