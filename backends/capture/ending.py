"""The sentences at the end of a capture: what was captured, and what was only watched.

Processes of the program note facts in lists of texts (`backends.capture.journal`, or `NOTED` where there is no parent).
`Facts` reads them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...store.errors import without_password
from ...store.failure import FACTOR, Phase, kind_in_words
from ...store.spool.spool import is_server
from ...store.text import count, printable, shortened

#: The facts of this process, by the name of their list.
NOTED: dict[str, list[str]] = {}
#: Seconds from which on an operation may be a hang.
LONG = 10
#: The type of an exception in which torch reports a fault of a device.
_OF_A_DEVICE = "AcceleratorError"
#: The most characters of what eager raised that a sentence quotes.
_QUOTED = 160


@dataclass(frozen=True, slots=True)
class Facts:
    """``captured``: pairs of a capture and the kind of its failure. ``refused``: pairs of a capture and what eager
    raised for it. ``absent``: pairs of a capture and why its backend cannot run here. ``lost``: failures that could not
    be stored, each with the reason. ``watched``: the backend of each compiled graph. ``compared``: the number of calls
    that were compared with eager. ``unchecked``: why calls could not be compared. ``let_pass``: pairs of a multiple
    of what `torch.testing.assert_close` allows and the result that differs by so much. ``complete``: every fact could
    be noted."""

    captured: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    absent: tuple[tuple[str, str], ...] = ()
    lost: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    compared: int = 0
    unchecked: tuple[str, ...] = ()
    let_pass: tuple[tuple[str, str], ...] = ()
    complete: bool = True

    @classmethod
    def read(cls, noted: Callable[[str], Sequence[str]], *, complete: bool = True) -> Facts:
        """Read the lists; ``noted`` returns the lines of one by name. What was lost and ``found`` later is not lost."""
        found = set(noted("found"))
        return cls(
            complete=complete,
            lost=tuple(line for line in dict.fromkeys(noted("lost")) if line not in found),
            captured=_pairs(noted("captured")),
            refused=_pairs(noted("refused")),
            absent=_pairs(noted("absent")),
            watched=tuple(noted("watched")),
            compared=len(noted("compared")),
            unchecked=tuple(dict.fromkeys(noted("unchecked"))),
            let_pass=_pairs(noted("let_pass")),
        )


def _pairs(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Split each line at its first space."""
    return tuple((name, rest) for name, _, rest in (line.partition(" ") for line in dict.fromkeys(lines)))


def failures(facts: Facts, db: str, *, hint: bool = True, ids: bool = False) -> list[str]:
    """Return sentences about the captured failures, those that are not the backend's, and those that are not stored.

    With ``hint`` the first ends with the next command, which with ``ids`` names the captures.
    """
    place, sent = shlex.quote(without_password(db)), is_server(db)
    lines = []
    if facts.captured:
        kinds = Counter(kind for _, kind in facts.captured)
        listed = ", ".join(count(n, kind_in_words(kind)) for kind, n in sorted(kinds.items()))
        named = "".join(f" {name}" for name, _ in facts.captured) if ids else ""
        then = f"; next: minify run {place}{named}" if hint else ""
        then = f"; on the way to {without_password(db)}" if sent else then
        lines.append(f"captured {count(kinds.total(), 'failure')} ({listed}){then}")
    if facts.refused:
        capture, raised = facts.refused[0]
        number = len(facts.refused)
        said = shortened(printable(raised), _QUOTED)
        more = f", and {count(number - 1, 'other error')}" if number > 1 else ""
        fault = "the program is wrong, not the backend"
        then = "" if sent else f": minify show {place} {capture}"
        lines.append(f"eager mode fails, too, for {count(number, 'failing graph')} ({said}{more}); {fault}{then}")
    lines += [f"{printable(why)}; nothing to minify" for why in dict.fromkeys(why for _, why in facts.absent)]
    if facts.lost:
        more = f" (and {count(len(facts.lost) - 1, 'other')})" if len(facts.lost) > 1 else ""
        lines.append(f"{count(len(facts.lost), 'failure')} could not be stored: {printable(facts.lost[0])}{more}")
    if not facts.complete:
        then = "" if sent else f": minify list {place}"
        lines.append(f"not all that happened could be noted, because the disk is full or cannot be written{then}")
    return lines


def interrupted(phase: Phase, seconds: float) -> str:
    """Return the sentence about a program that was interrupted in an operation of so many ``seconds``. It is empty if
    that was short."""
    if seconds < LONG:
        return ""
    what = "compilation" if phase in (Phase.COMPILE, Phase.GUARDS) else f"{phase} call"
    hang = f"--timeout {max(LONG, round(seconds / 2, -1)):.0f}"
    return f"interrupted in a {what} after {seconds:.0f} s; if it hangs, {hang} captures that as a failure"


def watched(facts: Facts, *, checks: bool, ended: str) -> str:
    """Return the sentence about a program in which no backend failed. ``checks``: calls were to be compared. ``ended``
    is the type of the exception with which the program ended."""
    how = f"; the program ended with {printable(ended)} outside every watched compilation and call" if ended else ""
    if ended.rpartition(".")[2] == _OF_A_DEVICE:
        wait = "CUDA_LAUNCH_BLOCKING=1 in the environment" if checks else "--check"
        how += f"; a device reports a fault after the call that met it, unless the call waits for it: {wait}"
    if not facts.watched:
        return f"nothing captured: no graph reached a backend of torch.compile{how}"
    named = sorted(Counter(facts.watched).items())
    graphs = ", ".join(f"{count(n, 'graph')} compiled by {name}" for name, n in named)
    checked = facts.compared or checks
    compared = count(facts.compared, "call") if checked else "no (--check compares calls with eager)"
    beyond = let_pass(facts)
    none = "" if beyond else ", none failed"
    return f"{graphs}{none}; compared: {compared}{f', {beyond}' if beyond else ''}{how}"


def let_pass(facts: Facts) -> str:
    """Return the words about the largest difference that a comparison let pass, or an empty text."""
    if not facts.let_pass:
        return ""
    times, where = max(facts.let_pass, key=lambda pair: float(pair[0]))
    return (
        f"which differ from eager by up to {float(times):.2g} times what torch.testing.assert_close allows "
        f"at {printable(where)} ({FACTOR:.0f} times are let pass, --check strict reports it)"
    )


def unchecked(facts: Facts) -> str:
    """Return the sentence about calls that could not be compared with eager. Empty without such calls."""
    if not facts.unchecked:
        return ""
    others = len(facts.unchecked) - 1
    more = f" (and {count(others, 'other reason')})" if others else ""
    return f"not all could be judged against eager: {facts.unchecked[-1]}{more}"
