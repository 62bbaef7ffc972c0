"""The texts of a script about itself: what fails and where, with which versions, how surely, and what it needs.

They are made for a docstring: printable ASCII, lines of at most 118 columns, nothing about the machine.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from .. import __version__
from ..backends.adapters import Illustration
from ..backends.provenance import variables
from ..backends.provenance.installed import Installed
from ..backends.provenance.spec import BackendSpec
from ..backends.running.deaths import signal_name
from ..store.document.case import Case, called_names
from ..store.document.program_lines import comes_from
from ..store.failure import Failure, FailureKind, identity_in_words
from ..store.masking import readable
from ..store.rates import GONE, runs_that_tell
from ..store.text import count
from .comment import Findings
from .report.figures import Figures, Values, figures, number
from .report.labels import labels, owner
from .report.phrases import (
    actual,
    code,
    docstring,
    expected,
    fits,
    log,
    markdown,
    one_line,
    points_to,
    prose,
    summary,
    title,
)
from .source.action import Action

_WIDTH = 118
_RATIO = re.compile(r"\d{1,6} of \d{1,6}")
_COPIED = re.compile(r"The backend is copied from (.{1,120}?)\.(?= [A-Z]|$)")
_SIGNATURE = re.compile(r"v\d{1,3}:[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Header:
    """The facts that a script states besides its code.

    * ``failure`` is the failure of the case. ``timeout`` is the number of seconds after which a run counts as a
      hang.
    * ``torch``, ``python`` and ``platform`` are versions (``2.13.0+cpu``, ``3.11``, ``Linux x86_64``). ``backend``
      is the backend's name, with its version unless it is a part of torch. ``installed`` has more versions.
    * ``nodes`` and ``inputs`` are counts of the capture before minification. ``queries`` counts the queries to the
      backend.
    * ``runs`` is the result of the verification (``3 of 3``), ``replays`` the result of replays of the whole
      capture.
    * ``summed`` is True if the script takes gradients of the sum of the outputs. ``public`` is False if it calls
      the operators that Dynamo records for control flow. ``complete`` is False if the search was stopped.
    * ``layers`` has backend, layer and result of an ablation, ``enters`` its answer.
    * ``matters`` has sentences about the parts that the failure needs, the summary first. ``passing_variant``
      describes the difference to the nearest passing candidate, in words and then in lines that begin with ``-`` or
      ``+``.
    * ``first`` is the first node of the captured graph whose value differs (`minifier.oracle.first_node`).
    * ``illustrations`` is the code that the compiler made of the case, with a heading.
    * ``steps`` has the passes that made the case smaller, each with the remaining numbers.
    * ``tentative`` is the reason why the failure is not certain, or empty.
    * ``cause`` has sentences about the part of the compiler in which the failure arises, and about ways around it.
    * ``findings`` has what was measured on the case of the script, in phrases for a comment.
    * ``values`` has the results that differ in the run of the script.
    """

    failure: Failure
    signature: str = ""
    torch: str = ""
    python: str = ""
    platform: str = ""
    backend: str = ""
    nodes: int = 0
    queries: int = 0
    runs: str = ""
    timeout: int = 60
    summed: bool = False
    public: bool = True
    complete: bool = True
    layers: tuple[tuple[str, str, str], ...] = ()
    enters: str = ""
    matters: tuple[str, ...] = ()
    passing_variant: tuple[str, ...] = ()
    illustration_heading: str = ""
    illustrations: tuple[Illustration, ...] = ()
    inputs: int = 0
    replays: str = ""
    installed: Installed = field(default_factory=Installed)
    first: dict[str, Any] | None = None
    steps: tuple[tuple[str, int, int], ...] = ()
    tentative: str = ""
    cause: tuple[str, ...] = ()
    findings: Findings = field(default_factory=Findings)
    values: tuple[Values, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """All that a template sees, documented in ``docs/templates.md``. Texts are finished source; lists hold its lines.

    What comes from a capture is text of strangers: the templates put it through ``code``, ``fence``, ``cell`` or
    ``ascii`` wherever it is not yet source.
    """

    headline: str
    about: list[str]
    advice: str
    passes: int
    environment: list[str]
    sets: dict[str, str]
    required: list[str]
    imports: list[str]
    setup: list[str]
    ambient: list[str]
    functions: str
    action: Action
    test: str
    raises: str
    reason: str
    hang: int
    dies: int
    codes: tuple[int, ...]
    needle: str
    timeout: int
    isolated: bool
    requirements: list[str]
    cells: list[dict[str, Any]]
    # Sentences and tables about the failure.
    title: str
    comment: str
    summary: str
    comes_from: str
    backend: str
    expected: str
    actual: str
    sure: str
    tentative: str
    log: str
    figures: list[Figures]
    values: list[Values]
    first: str
    layers: tuple[tuple[str, ...], ...]
    enters: str
    ablation: str
    cause: list[str]
    matters: list[str]
    passing_variant: list[str]
    illustration_heading: str
    illustrations: list[tuple[str, str]]
    story: str
    steps: tuple[tuple[str, int, int], ...]
    versions: list[str]
    system: str
    needs: str
    variables: str
    owner: str
    labels: list[str]
    # A comment.
    reproduced: str
    findings: list[tuple[str, str]]
    beside: list[str]
    short_program: str = ""
    #: The script, in every format but the script itself, and the script without its docstring.
    script: str = ""
    program: str = ""


def about(case: Case, header: Header) -> list[str]:
    """The docstring without its first line."""
    failure = header.failure
    lines: list[str] = []
    if header.tentative:
        lines += _wrapped(f"TENTATIVE: {header.tentative}")
    if not fits(case, failure):
        lines += _wrapped(failure.headline(), 600)
    said = failure.diagnosis()
    told = f"{readable(failure.message)}\n{failure.headline()}"  # the title or the line above has the headline
    if failure.kind is not FailureKind.CRASH and said and said.removeprefix("error: ") not in told:
        lines += _wrapped(f"On standard error: {said}")
    cause = failure.root_cause()
    if cause and cause.rpartition(": ")[2] not in failure.message:
        lines += _wrapped(f"Cause: {cause}")
    found = next(figures(failure), None)
    if found and not (found.error in failure.message and found.eager in failure.message):
        lines += _wrapped(f"Largest error against float64: {found.error} compiled, {found.eager} in eager.")
    if place := comes_from(case.graph):
        lines += _wrapped(f"From {place} of the program.")
    lines += _wrapped(" ".join(filter(None, (minified(case, header), sure(header)))))
    lines += _wrapped(", ".join(versions(header)) + "." if versions(header) else "")
    lines += _wrapped(needs(header.installed))
    lines += _wrapped(copied(case))
    lines += _wrapped(variables.sentence(not_set(case)), 2000)
    return [docstring(line) for line in lines if line]


def minified(case: Case, header: Header) -> str:
    """A sentence on how the case was minified."""
    after = count(case.graph.count, "node")
    text = f"Minified by fxminify {__version__}"
    if header.nodes > case.graph.count:
        text += f" from {count(header.nodes, 'node')} to {case.graph.count}"
    elif header.nodes and header.complete:
        text += f"; {'its only node is needed' if header.nodes == 1 else f'none of its {after} can go'}"
    asked = [count(header.queries, "query")] if header.queries else []
    stopped = [] if header.complete else ["the search was stopped"]
    text += f" ({', '.join([*asked, *stopped])})." if asked or stopped else "."
    if not _SIGNATURE.fullmatch(header.signature):
        return text
    said = identity_in_words(header.signature, header.failure.kind, one_line(called_names(case), 100))
    return f"{text} Signature {said}."


def reproduced(header: Header) -> str:
    """The versions and the number of runs in which the script showed the failure; empty where no run did."""
    if not _RATIO.fullmatch(header.runs) or header.runs.startswith("0 "):
        return ""
    return prose(f"{', '.join(versions(header))} in {header.runs} fresh runs")


def sure(header: Header) -> str:
    """A sentence on how often the failure was seen."""
    text = f"It failed in {header.runs} fresh runs" if _RATIO.fullmatch(header.runs) else ""
    if _RATIO.fullmatch(header.replays):
        text += f"{', and' if text else 'It failed'} in {header.replays} replays of the whole graph"
    return f"{text}." if text else ""


def versions(header: Header) -> list[str]:
    """The versions of torch (``torch 2.13.0+cpu``), packages that the backend needs, Python and the platform."""
    installed = header.installed
    torch, python = header.torch or installed.torch, header.python or installed.python
    out = [f"torch {torch}"] if torch else []
    packages = [f"{p.name} {p.version}" for p in installed.packages if p.direct]
    out += [*([header.backend] if header.backend and header.backend not in packages else []), *packages]
    out += [name for name in installed.local if " " in name]
    out += [f"Python {python}"] if python else []
    out += [header.platform or installed.platform]
    return [one_line(text, 120) for text in out if text]


def needs(installed: Installed) -> str:
    """Describe the packages that the script needs besides torch, and how to install them."""
    parts = []
    if sources := [p.source for p in installed.packages if p.source and p.direct]:
        parts.append(f"pip install {' '.join(sources)}")
    for from_, was in ((True, "a file"), (False, "a directory")):
        if names := [
            f"{p.name} {p.version}" for p in installed.packages if not p.source and p.direct and p.file is from_
        ]:
            parts.append(f"{', '.join(names)}, installed from {was}")
    if local := [name.partition(" ")[0] for name in installed.local]:
        what = f"module{'s' * (len(local) > 1)} {', '.join(local)}"
        parts.append(f"the {what} beside this file or on PYTHONPATH (no installed package has it)")
    return one_line(f"Needs: {'; '.join(parts)}.", 600) if parts else ""


def not_set(case: Case) -> list[str]:
    """The environment variables that the backend reads and the script does not set."""
    return [name for name in case.backend.get("variables", ()) if name not in case.backend.get("environment", {})]


def copied(case: Case) -> str:
    """A sentence on the file from which the script copies its backend, empty where it imports the backend."""
    source = BackendSpec.from_json(case.backend).source
    return one_line(f"The backend is copied from {source.file}.", 200) if source is not None and source.file else ""


def copied_from(docstring: str) -> str:
    """The file that `copied` names in the docstring of a script; empty where it names none."""
    found = _COPIED.search(" ".join(docstring.split()))
    return found[1] if found else ""


def requirements(header: Header) -> list[str]:
    """The requirements for pip with the versions of the failure, torch's without a local part (``+cpu``)."""
    torch = (header.torch or header.installed.torch).partition("+")[0]
    pinned = f"torch=={torch}" if re.fullmatch(r"[0-9][0-9A-Za-z.]{0,40}", torch) else "torch"
    return [pinned, *(p.source for p in header.installed.packages if p.source and p.direct)]


def passes(header: Header) -> int:
    """The number of passing runs of the script that mean that the bug is gone: 1 where it failed in every run.

    0 where no run of it failed.
    """
    shown, _, runs = header.runs.partition(" of ")
    always = not _RATIO.fullmatch(header.runs) or shown == runs
    if always and not _RATIO.fullmatch(header.replays):
        return 1
    return runs_that_tell(int(shown), int(runs), GONE) if _RATIO.fullmatch(header.runs) and int(shown) else 0


def advice(header: Header, hang: int, *, required: bool = False) -> str:
    """Return a sentence on how to run the script and on its exit codes. ``required``: it may lack a variable."""
    failure, needed = header.failure, passes(header)
    how = f"SIGALRM ends it after {hang} s" if hang else "it fails"
    if failure.signal and not hang:
        how = f"it dies of {signal_name(failure.signal)}"
    cannot = f", {variables.CODE} that it cannot run here" if required else ""
    if needed != 1:
        gone = f"{needed} runs in a row with exit code 0 mean it is gone" if needed else "exit code 0 says nothing"
        return f"Run it often: {how} now and then while the bug is there; {gone}{cannot}."
    return f"Run it: {how} while the bug is there; exit code 0 means the bug is gone{cannot}."


def first_node(found: dict[str, Any] | None) -> str:
    """A sentence, in Markdown, on the first value of the captured graph that differs."""
    if not found or found.get("of") == 1:
        return ""
    error, eager = number(found.get("error")), number(found.get("eager_error"))
    place = markdown(f"node {found.get('position')} of {found.get('of')}", 40)
    numbers = f": error {error}, {eager} in eager" if error and eager else ""
    return (
        f"The first value of the captured graph that differs is {code(str(found.get('node')), 80)}, {place}{numbers}."
    )


def story(case: Case, header: Header) -> str:
    """Describe the minification in one or two sentences."""
    text = minified(case, header)
    if header.inputs > len(case.inputs):
        text += f" Of {count(header.inputs, 'input')} it needs {len(case.inputs) or 'none'}."
    return text


def system(header: Header) -> str:
    """The lines of the environment, as `torch.utils.collect_env` prints them."""
    installed = header.installed
    lines = [f"{label}: {value}" for label, value in installed.system]
    packages = [f"{p.name}=={p.version}" for p in installed.packages]
    lines = [*lines, *(["", "Versions of relevant libraries:"] if lines and packages else []), *packages]
    return one_line("\n".join(lines or versions(header)), 6000, lines=80)


def _wrapped(text: str, length: int = 400) -> list[str]:
    return textwrap.wrap(one_line(text, length), _WIDTH, break_on_hyphens=False) if text else []


def sentences(case: Case, header: Header) -> dict[str, Any]:
    """The part of the context that is about the failure and not about the code."""
    failure = header.failure
    named = title(case, failure)
    return {
        "title": named,
        "comment": re.sub(r"-(?=-)", "- ", named),  # two hyphens have no place in a comment
        "summary": summary(case, failure, header.timeout),
        "comes_from": one_line(comes_from(case.graph), 400),
        "backend": one_line(str(case.backend.get("name", "")), 80),
        "expected": expected(failure),
        "actual": actual(failure, header.timeout),
        "sure": sure(header),
        "tentative": one_line(header.tentative, 300),
        "log": log(failure),
        "figures": list(figures(failure)),
        "values": list(header.values),
        "first": first_node(header.first),
        "cause": [prose(text) for text in header.cause],
        "layers": header.layers,
        "enters": header.enters,
        "ablation": prose(points_to(header.enters)) if header.enters else "",
        "matters": [prose(text) for text in header.matters],
        "passing_variant": [
            *(prose(text) for text in header.passing_variant[:1]),
            *(one_line(text, 200) for text in header.passing_variant[1:]),
        ],
        "illustration_heading": prose(header.illustration_heading),
        "illustrations": [(_about(item), one_line(item.text, 4000, lines=60)) for item in header.illustrations],
        "story": story(case, header),
        "steps": header.steps,
        "versions": versions(header),
        "system": system(header),
        "needs": needs(header.installed),
        "variables": one_line(variables.sentence(not_set(case)), 2000),
        "owner": owner(case),
        "labels": labels(case, failure),
        "reproduced": reproduced(header),
        "findings": header.findings.rows(),
    }


def _about(item: Illustration) -> str:
    return prose(f"{item.name}, refused: {item.error}" if item.error else f"{item.name}:")
