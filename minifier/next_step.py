"""Split the message of an error into what happened and what to do next, for programs that read ``--json``.

Messages of fxminify are written for a person: what happened, then the next command. A program gets the same in three
fields: ``error``, ``hint`` and ``command``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence

#: Flags that a message may ask for. The next command is then the same command with the flag.
_FLAGS = ("--trust", "--force", "--again", "--embed-data")
#: Ends of a clause.
_CLAUSE = re.compile(r"(?:[;:?]|(?<=\w)\.|\)\.|,) ")


def document(message: str, typed: Sequence[str], verbs: Collection[str]) -> dict[str, str]:
    """Return the fields of an error. ``typed`` has the words after ``minify``, ``verbs`` the names of all verbs.

    ``command`` is the next command: the one that the message names, or the typed one with the flag that the message
    names, or the help of the verb. ``hint`` is the part of the message about it.
    """
    text = " ".join(message.split()).removesuffix(".")
    named = re.compile(rf"`(minify (?:{'|'.join(verbs)})\b[^`]*)`|(?<![\w-])(minify (?:{'|'.join(verbs)})\b[^;`]*)")
    if (found := named.search(text)) is not None:
        error, hint = _split(text, found.start())
        return {"error": error, "hint": hint, "command": (found[1] or found[2]).rstrip(" ).")}
    for flag in _FLAGS:
        if (place := re.search(rf"{flag}\b", text)) is not None and flag not in typed:
            aside = f" ({flag})"
            error, hint = _split(text, place.start())
            if aside in text:
                error, hint = text.replace(aside, ""), f"add {flag} if you agree to it"
            return {"error": error, "hint": hint, "command": shlex.join(["minify", *_with(flag, typed)])}
    verb = next((word for word in typed if word in verbs), "")
    command = f"minify {verb} --help" if verb else "minify --help"
    return {"error": text, "hint": f"{command} lists what it takes", "command": command}


def _split(text: str, place: int) -> tuple[str, str]:
    """Return the clauses before the one at ``place``, and the rest. A clause that introduces it with a colon belongs to
    it."""
    ends = [match for match in _CLAUSE.finditer(text) if match.end() <= place + 1]
    if ends and text[ends[-1].start()] == ":" and ends[-1].end() >= place and len(ends) > 1:
        ends.pop()
    if not ends:
        return text, text
    end = ends[-1]
    return text[: end.start()].rstrip(" ;:,."), text[end.end() :]


def _with(flag: str, typed: Sequence[str]) -> list[str]:
    """Return the typed words with ``flag`` after the verb, before what may belong to a program."""
    words = list(typed)
    return [*words[:1], flag, *words[1:]]
