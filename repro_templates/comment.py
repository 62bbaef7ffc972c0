"""A comment for an issue tracker: `MOST_LINES` lines of Markdown with the script and what was measured about it.

A script that is longer than the lines that are left goes into a file of its own beside the comment.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ..store.parsing import parse
from .report.phrases import prose

#: The most lines of a comment.
MOST_LINES = 25
#: Lines of the template besides the script and the findings: the first line, the fence, how to run the script, a blank.
_FRAME = 5
#: The most characters of one finding.
_LONGEST = 700


@dataclass(frozen=True, slots=True)
class Findings:
    """Measurements on the case of a script, in phrases. A finding that was not measured is empty.

    * ``necessary``: properties that the failure needs. ``passes_with``: changes with which the case passes.
    * ``free``: properties that do not matter as far as they were varied. ``also_fails``: other values that fail.
    * ``fails_in``: the part of the compiler or the layer in which the failure arises.
    * ``works_around``: settings with which the case and the captured graph pass.
    * ``first_bad``: the first failing version of the tried versions. ``now``: the result of the last retest where it
      is not the same failure.
    * ``values``: all values of a small result, of the compiled function and of eager.
    """

    necessary: tuple[str, ...] = ()
    passes_with: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    also_fails: tuple[str, ...] = ()
    fails_in: str = ""
    works_around: tuple[str, ...] = ()
    first_bad: str = ""
    now: str = ""
    values: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """Return a label and a text in Markdown for each finding that there is."""
        found = {
            "Compiled and eager": self.values,
            "Necessary": _joined(self.necessary),
            "Passes with": _joined(self.passes_with),
            "Does not matter (as tested)": _joined(self.free),
            "Also fails with": _joined(self.also_fails),
            "Fails in": self.fails_in,
            "Works around": _joined(self.works_around),
            "First bad version": self.first_bad,
            "Retested": self.now,
        }
        return [(label, prose(text)) for label, text in found.items() if text]


def _joined(phrases: tuple[str, ...]) -> str:
    """Return the phrases in one line. Phrases for which there is no room are counted."""
    kept: list[str] = []
    for phrase in phrases:
        if kept and len("; ".join([*kept, phrase])) > _LONGEST:
            return f"{'; '.join(kept)}; and {len(phrases) - len(kept)} more (`minify show`)"
        kept.append(phrase)
    return "; ".join(kept)


def shortened(program: str, findings: Findings) -> str:
    """Return ``program`` with fewer blank lines; an empty text if a comment with these findings has no room for it."""
    room = MOST_LINES - _FRAME - len(findings.rows())
    for short in (program, re.sub(r"\n{3,}", "\n\n", program), re.sub(r"\n{2,}", "\n", program)):
        whole = short.strip("\n")
        if len(whole.splitlines()) <= room and _is_same(whole, program):
            return whole
    return ""


def _is_same(short: str, program: str) -> bool:
    """Whether no string of ``program`` lost a blank line."""
    return short == program or ast.dump(parse(short, "short")) == ast.dump(parse(program, "program"))
