"""Sentences about a failure, fit for comments and reports: printable ASCII, bounded, without paths of a machine."""

from __future__ import annotations

import builtins
import re
import signal

from ...backends.running.deaths import signal_name
from ...store.diagnosis import without_warnings
from ...store.document.case import Case, Node
from ...store.failure import Failure, FailureKind, Frame, Phase, kind_in_words
from ...store.masking import mask
from ...store.measured import SAID
from ...store.privacy import private
from ...store.text import ascii_text, without_addresses


def one_line(text: str, length: int, *, lines: int = 1) -> str:
    """At most ``lines`` lines of ``text`` in ASCII, with paths as base names."""
    kept = private("\n".join(line.rstrip() for line in text[:100_000].strip().splitlines()[:lines]))
    safe = "\n".join(map(ascii_text, kept.split("\n")))
    return safe if len(safe) <= length else f"{safe[: length - 3]}..."


def without_paths(text: str, length: int) -> str:
    """At most ``length`` characters of ``text``, with paths as base names. The caller escapes it."""
    kept = private(text.strip())
    return kept if len(kept) <= length else f"{kept[: length - 3]}..."


def prose(text: str) -> str:
    """``text`` as a sentence in Markdown, without mark-up: names and subscripts read as they are written."""
    escaped = re.sub(r"(?<=\w)\\_(?=\w)", "_", markdown(text))
    return re.sub(r"\\\[(\d+)\\\](?!\()", r"[\1]", escaped)


def markdown(text: str, length: int = 1000) -> str:
    """Return one line of ``text`` in running Markdown, without mark-up, mentions or links."""
    return re.sub(r"([\\`*_\[\]<>|@#!~&])", r"\\\1", one_line(text, length))


def code(text: str, length: int = 300) -> str:
    """Return one line of ``text`` as inline code in Markdown, without mark-up, mentions or links."""
    line = one_line(text, length)
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""


def fence(text: str, language: str = "") -> str:
    """``text`` as a fenced block of Markdown. The fence is longer than any in ``text``."""
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks}{language}\n{text}\n{ticks}"


def docstring(text: str) -> str:
    """``text``, escaped for a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")


def headline(case: Case, failure: Failure) -> str:
    """``inductor: divergence in forward: ...``, the first line of a docstring.

    An error that does not fit is cut; the lines below have the whole text.
    """
    short = _short(failure)
    if not fits(case, failure):
        room = 115 - len(_place(case, failure)) - len(": ")
        short = _cut(short, room) if failure.type else _parts(short, room)
    return docstring(one_line(f"{_place(case, failure)}: {short}" if short else _place(case, failure), 115))


def _cut(error: str, room: int) -> str:
    """Return ``error`` in at most ``room`` characters: without exceptions that wrap another one, else its first
    clauses or words. If no word fits, return the type."""
    bare = _WRAPPERS.sub("", error)
    if len(bare) <= room:
        return bare
    kind = bare.partition(": ")[0] if ": " in bare else ""
    for end in (_CLAUSE, _WORD):
        ends = [at for found in end.finditer(bare) if max(len(kind) + 1, room // 3) < (at := found.start()) < room - 4]
        if ends:
            return f"{bare[: ends[-1]]} ..."
    return kind


def _parts(text: str, room: int) -> str:
    """The first parts of ``text``, which colons end, in at most ``room`` characters."""
    ends = [found.start() for found in re.finditer(": ", text) if found.start() <= room]
    return text[: ends[-1]] if ends else ""


def fits(case: Case, failure: Failure) -> bool:
    """Whether the first line of a docstring has the whole failure."""
    return len(one_line(f"{_place(case, failure)}: {_short(failure)}", 400)) <= 115


def title(case: Case, failure: Failure) -> str:
    """Return one line for a list of issues: ``[inductor] torch.acosh: inf where eager is finite ...``.

    For a graph that calls a single operator, it names the operator first. If a graph calls few operators, they
    follow the error if there is room.
    """
    called = list(dict.fromkeys(_called(node) for node in case.graph.compute))
    what = called[0] if len(called) == 1 else ""  # which one of several is to blame is not known
    name = str(case.backend.get("name", "")) or "backend"
    kind = kind_in_words(failure.kind)
    short = _short(failure)
    if len(short) > _WORDY:  # what wraps its cause in so many words says the same of every bug
        short = without_addresses(failure.root_cause()) or short
    said = f"[{name}] {': '.join(filter(None, (what, kind, short)))}"
    others = f" ({', '.join(called)})" if 1 < len(called) <= _FEW else ""
    return one_line(said + (others if len(said) + len(others) <= _TITLE else ""), _TITLE)


def _called(node: Node) -> str:
    """The name of what a node calls: ``torch.acosh``, ``aten.acosh``, ``sin``."""
    target = node.target
    named = next(iter(target.values()), "") if isinstance(target, dict) else target
    return str(named).removesuffix(".default").replace("::", ".").removeprefix("_")


def _place(case: Case, failure: Failure) -> str:
    name = str(case.backend.get("name", "")) or "backend"
    kind = kind_in_words(failure.kind)
    return f"{name}: {kind}" if (failure.kind, failure.phase) == _USUAL else f"{name}: {kind} in {failure.phase}"


#: Types of exceptions before another type, and the ends of a clause and of a word.
_WRAPPERS = re.compile(r"\A(?:\w+(?:Error|Exception|Failed): )+(?=\w+(?:Error|Exception): )")
_CLAUSE, _WORD = re.compile(r"(?=[;.] )"), re.compile(r"(?=[,:]? )")
#: The most characters of a title, and the most operators in it.
_TITLE, _FEW = 140, 3
#: Characters of an error from which on its cause stands in a title.
_WORDY = 100
_USUAL = (FailureKind.COMPILE_ERROR, Phase.COMPILE)


def _short(failure: Failure) -> str:
    """The headline of a failure, an exception by its bare name. A hang has none: its length depends on the timeout."""
    if failure.kind is FailureKind.HANG:
        return ""
    text = failure.headline()
    if failure.kind is FailureKind.DIVERGENCE:
        return text
    return text.removeprefix(failure.type.rpartition(".")[0] + ".") if failure.type else text


def summary(case: Case, failure: Failure, timeout: int) -> str:
    """Describe the failure as a sentence of Markdown. The message of an error is in the title and in the `log`."""
    name = code(str(case.backend.get("name", "")) or "the backend", 80)
    after = {Phase.BACKWARD: "in the backward pass", Phase.GUARDS: "while Dynamo makes guards"}.get(failure.phase, "")
    when = f" {after}" if after else ""
    compiled = "the backward graph of a function" if failure.phase is Phase.BACKWARD else "a graph"
    sentences = {
        FailureKind.COMPILE_ERROR: f"The backend {name} does not compile {compiled} that eager runs",
        FailureKind.RUNTIME_ERROR: f"What the backend {name} compiled raises{when or ' when it runs'}; eager does not",
        FailureKind.DIVERGENCE: f"What the backend {name} compiled and eager disagree{when}",
        FailureKind.CRASH: f"The process dies{_of(failure)} with the backend {name}{when}; eager is fine",
        FailureKind.HANG: f"The backend {name} does not come to an end within {timeout} s{when}; eager does",
        FailureKind.OUT_OF_MEMORY: f"The backend {name} runs out of memory{when}; eager does not",
    }
    said = code(_short(failure)) if failure.kind is FailureKind.DIVERGENCE else ""
    return f"{sentences[failure.kind]}: {said}" if said else f"{sentences[failure.kind]}."


def _of(failure: Failure) -> str:
    return f" of {signal_name(failure.signal)}" if failure.signal else ""


def points_to(enters: str) -> str:
    """The answer of an ablation as a sentence; ``enters`` is the layer."""
    return f"Ablation points {'' if enters.startswith('nowhere') else 'to '}{enters}."


def log(failure: Failure, lines: int = 20) -> str:
    """The error: its message, the exceptions that caused it, the frames of the backend. A compiler's warnings and the
    ends of very long lines are left out. The text of the assertion that failed in the script of a divergence."""
    if failure.kind is FailureKind.DIVERGENCE:
        return one_line(str(failure.detail.get(SAID, "")), 3000, lines=lines)
    parts = []
    if frames := relevant(failure):
        told = [f'  File "{f.file}", line {f.line}, in {f.function}' for f in frames]
        parts.append(
            "\n".join(["Traceback (most recent call last):", *(["  ..."] * (len(frames) < len(failure.frames))), *told])
        )
    message = without_warnings(failure.message)
    parts.append(f"{failure.type}: {message}" if failure.type else message)
    parts += [f"caused by {kind}: {text}" for kind, text in failure.causes if text.strip() not in failure.message]
    printed = without_warnings(failure.diagnostics).strip().splitlines() if failure.diagnosis() else []
    if any(line not in message for line in printed[:-1] or printed):
        parts.append("On standard error:\n" + "\n".join(printed[-lines:]))
    whole = "\n".join(parts).splitlines()
    return one_line(
        "\n".join(f"{w[:_LINE_LENGTH]} ..." if len(w) > _LINE_LENGTH else w for w in whole),
        6000,
        lines=4 * lines,
    )


#: The most characters of a line of a log: the command of a compiler has thousands.
_LINE_LENGTH = 300


def relevant(failure: Failure, most: int = 10) -> list[Frame]:
    """Return the frames from the call of the backend to the one that raised, without earlier frames of torch and
    fxminify.
    """
    frames = [f for f in failure.frames if not f.file.startswith(("fxminify/", "<frozen "))]
    calls = [i for i, f in enumerate(frames) if (f.file, f.function) in _CALLS_BACKEND]
    return frames[calls[-1] + 1 if calls and calls[-1] + 1 < len(frames) else 0 :][-most:]


#: Frames of torch between a program and a backend.
_CALLS_BACKEND = {
    ("torch/_dynamo/repro/after_dynamo.py", "__call__"), ("torch/__init__.py", "__call__"),
    ("torch/_dynamo/output_graph.py", "_call_user_compiler"), ("torch/_dynamo/output_graph.py", "call_user_compiler"),
    ("torch/_dynamo/eval_frame.py", "_fn"), ("torch/_dynamo/eval_frame.py", "compile_wrapper"),
}  # fmt: skip


def raised(failure: Failure) -> str:
    """The class of exception that a test of the failure expects, as source. What Dynamo raises is a RuntimeError."""
    if failure.kind is FailureKind.DIVERGENCE:
        return "AssertionError"
    if failure.phase in (Phase.COMPILE, Phase.GUARDS) or failure.type.startswith("torch."):
        return "RuntimeError"
    known = getattr(builtins, failure.type, None)
    return failure.type if isinstance(known, type) and issubclass(known, Exception) else "Exception"


def exit_codes(failure: Failure) -> tuple[int, ...]:
    """Return the possible exit codes of a script with this failure."""
    if failure.kind is FailureKind.HANG:
        return (-int(signal.SIGALRM),)
    if failure.signal:
        return (-failure.signal,)
    if failure.kind is FailureKind.OUT_OF_MEMORY:
        return (1, -int(signal.SIGKILL))
    left = re.fullmatch(r"exit (\d+)", failure.type) if failure.kind is FailureKind.CRASH else None
    return (int(left[1]) if left else 1,)


def expected(failure: Failure) -> str:
    if failure.kind is FailureKind.DIVERGENCE:
        return "The compiled function agrees with eager, as `torch.testing.assert_close` checks."
    return "The compiled function runs, as it does in eager."


def actual(failure: Failure, timeout: int) -> str:
    if failure.kind is FailureKind.HANG:
        return f"No answer within {timeout} s."
    if failure.signal:
        return f"The process dies of {signal_name(failure.signal)} in {failure.phase}."
    return one_line(_short(failure), 300)


def distinctive(failure: Failure) -> str:
    """A part of the message that a rerun prints, too: its longest part without numbers, names or paths."""
    if failure.kind is FailureKind.DIVERGENCE:
        return "AssertionError"
    if failure.kind in (FailureKind.CRASH, FailureKind.HANG):
        return ""
    first = (failure.message.strip().splitlines() or [""])[0]
    stretches = [s.strip() for s in re.split(r"<\w+>|[^ -~]", mask(first))]
    longest = max((s for s in stretches if s in first and private(s) == s), key=len, default="")
    return longest if len(longest) >= 8 else failure.type.rpartition(".")[2]
