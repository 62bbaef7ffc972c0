"""`minify report --what-is-inside`: what leaves this machine with a report, and what does not.

It reads the files that would be sent and the case they were made from, and lists their content for the user. What it
says to be absent was looked for in the finished files, and it says what could not be looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...backends.provenance.spec import BackendSpec
from ...repro_templates.report.html import FailureReport
from ...repro_templates.report.phrases import one_line
from ...store.document.case import Case, operators
from ...store.document.program_lines import comes_from
from ...store.failure import Failure
from ...store.index import CaptureInfo, Index
from ...store.index.documents import graph_hash
from ...store.privacy import revealing
from ...store.private_values import here
from ...store.scrubbing import MASKED
from ...store.text import count
from .report import REPORT

_SHAPES = {
    "an absolute path": "absolute paths",
    "what looks like a secret": "what looks like a secret",
    "an address": "addresses of mail and machines",
}


@dataclass(frozen=True, slots=True)
class Provenience:
    """Whether this user made a capture, and the fxminify that masked private values there; empty if none says so."""

    capture: int
    ours: bool
    masked_by: str

    def sentence(self) -> str:
        if self.ours:
            masked = f"masked there by fxminify {self.masked_by}" if self.masked_by else "not masked at capture"
            return f"captured with your key: what is private was {masked}"
        said = (
            f"it says that fxminify {self.masked_by} masked them" if self.masked_by else "nothing says they were masked"
        )
        return f"captured elsewhere, so that user, host and environment cannot be looked for: {said}"


def provenience(index: Index, capture: CaptureInfo) -> Provenience:
    """Return the origin of a capture, as far as this user can know it."""
    ours = capture.nodes_before is not None and index.stored(capture.id).captured().ours
    return Provenience(capture.id, ours, one_line(str(capture.provenance.get(MASKED, "")), 20))


def listing(
    case: Case,
    failure: Failure | None,
    files: Mapping[str, bytes],
    origin: Provenience,
    *,
    renamed: bool,
    captured: Case | None = None,
) -> dict[str, list[str]]:
    """Four lists of sentences: ``inside``, ``look_at`` (to check before sending), ``looked_for``, ``not_inside``.

    ``captured`` is the case before its minification.
    """
    whole = captured is None or graph_hash(captured) == graph_hash(case)
    parts = ["its type and message"] if failure is not None and failure.message else []
    parts += [f"the places of {len(failure.frames)} frames, in files of packages"] if failure and failure.frames else []
    inside = [
        f"graph{', as it was captured' if whole else ''}: {_few(_operators(case))}",
        "names: neutral ones" if renamed else f"names, as in the program: {_few(_names(case))}",
        *([f"places in the program: {lines}"] if not renamed and (lines := comes_from(case.graph)) else []),
        *_values(case),
        *_backend(case),
        *([f"error: {' and '.join(parts)}, without paths"] if parts else []),
        "versions of torch, Python, the packages the backend stands on, the operating system and the processor",
    ]
    if REPORT in files:
        inside.append(f"file {REPORT}: all this, the answers about the failure, and the passes that made it smaller")
    inside += [f"file {name}: {len(content):,} bytes of captured values"
               for name, content in files.items() if name.endswith(".safetensors")]  # fmt: skip
    texts = {n: content.decode("utf-8", "replace") for n, content in files.items() if not n.endswith(".safetensors")}
    beyond = "what of the program, its weights and its data is not named above"
    absent = [beyond] if whole else [beyond, "the graph as it was captured"]
    return {"inside": [one_line(text, 300) for text in inside], **_searched(texts, [origin], absent)}


def page_listing(report: FailureReport, page: str, origins: Sequence[Provenience]) -> dict[str, list[str]]:
    """`listing` for the HTML report ``page``, which also shows captured graphs."""
    details = report.details
    parts = {
        "graphs as captured, with names of the program": sum(d.before is not None or bool(d.source) for d in details),
        "minimal graphs": sum(d.after is not None or bool(d.minimal) for d in details),
        "scripts, with the values they need": sum(bool(d.script) for d in details),
        "messages and frames, without paths": sum(bool(d.message or d.frames) for d in details),
        "ends of what was written on standard error, without paths": sum(bool(d.stderr) for d in details),
        "steps of reductions, with what each changed": sum(bool(d.steps) for d in details),
        "versions, operating system and processor": sum(bool(d.environment) for d in details),
    }
    inside = [f"the list: {count(report.count, 'failure')} with backend, sizes and the first line of the error"]
    inside += [f"{what}: of {count(number, 'failure')}" for what, number in parts.items() if number]
    absent = ["what of the programs, their weights and their data is not named above"]
    return {"inside": inside, **_searched({"the page": page}, origins, absent)}


def findings(files: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Return the suspicious parts of each of ``files``, by name, without repeating the private text."""
    texts = {n: content.decode("utf-8", "replace") for n, content in files.items() if not n.endswith(".safetensors")}
    return {name: found for name, text in texts.items() if (found := list(dict.fromkeys(revealing(text))))}


def warnings(files: Mapping[str, bytes]) -> list[str]:
    """Return a line for each of ``files`` that contains private text, with advice."""
    return [
        f"{name} has {', '.join(what)} in it: this is part of the code or of a value, so it was not changed; "
        "look for it before you send the file"
        for name, what in findings(files).items()
    ]


def _searched(texts: Mapping[str, str], origins: Iterable[Provenience], absent: Sequence[str]) -> dict[str, list[str]]:
    """List what ``texts`` were searched for, and which of it was found."""
    private = here()
    seen = {name: list(dict.fromkeys(revealing(text))) for name, text in texts.items()}
    present = {what for found in seen.values() for what in found}
    looked = [f"of this machine: {private.described()}"]
    looked += [f"by shape: {', '.join(_SHAPES.values())}"]
    if private.common:
        looked.append(f"not looked for, because too short or too common to tell: {', '.join(private.common)}")
    said: dict[str, list[int]] = {}
    for origin in origins:
        said.setdefault(origin.sentence(), []).append(origin.capture)
    looked += [f"{_of(ids)}: {sentence}" for sentence, ids in said.items()]
    gone = [name for what, name in _SHAPES.items() if what not in present]
    facts = dict.fromkeys(value.what for value in private.values)
    missing = [what for what in facts if what not in present]
    named = [what for what in missing if what.startswith("the ") and "environment" not in what]
    values = len(missing) - len(named)
    if values:
        named.append(f"{count(values, 'value')} of this environment")
    return {
        "look_at": [f"{name}: {what}" for name, found in seen.items() for what in found],
        "looked_for": looked,
        "not_inside": [*absent, *([f"{', '.join(named)}: none found"] if named else []),
                       *([f"{', '.join(gone)}: none found"] if gone else [])],
    }  # fmt: skip


def _of(ids: Sequence[int]) -> str:
    return f"failure{'s' if len(ids) > 1 else ''} {_few([str(id) for id in ids])}"


def lines(found: Mapping[str, list[str]]) -> list[str]:
    """`listing` for a terminal."""
    heads = {
        "inside": "Inside:", "look_at": "Look at this before you send it:", "looked_for": "Looked for:",
        "not_inside": "Not inside:",
    }  # fmt: skip
    return [line for key, head in heads.items() if found[key] for line in (head, *(f"  {text}" for text in found[key]))]


def _operators(case: Case) -> list[str]:
    called = [str(next(iter(n.target.values()))) if isinstance(n.target, dict) else str(n.target)
              for n in case.graph.compute]  # fmt: skip
    return list(dict.fromkeys([*called, *operators(case.graph)]))


def _names(case: Case) -> list[str]:
    return [str(node.target) for node in case.graph.placeholders] + list(case.graph.attrs)


def _values(case: Case) -> list[str]:
    """Describe the tensors whose values are printed."""
    drawn = sum(t.init is not None for t in case.tensors)
    kept = [t for t in case.tensors if t.storage is not None]
    out = [f"values of {count(drawn, 'tensor')}, made from a seed or a constant, not captured"] if drawn else []
    if kept:
        shapes = _few([f"{t.dtype}{list(t.shape)}" for t in kept])
        out.append(f"values of {count(len(kept), 'tensor')}, needed to show the failure, maybe captured: {shapes}")
    return out


def _backend(case: Case) -> list[str]:
    spec = BackendSpec.from_json(case.backend)
    modules = spec.modules() + [str(item["module"]) for item in case.imports if "module" in item]
    out = [f"backend: the name {spec.name or '(none)'}" + (f", the modules {_few(modules)}" if modules else "")]
    if spec.source is not None:
        lines, file = len(spec.source.text.splitlines()), spec.source.file or "the program"
        out.append(f"source of yours: {lines} lines of {file} that define the backend")
    out += [f"source of yours: {len(str(item['source']).splitlines())} lines that define an operator"
            for item in case.imports if "source" in item]  # fmt: skip
    return out + (["options of the backend"] if spec.options is not None else [])


def _few(items: list[str]) -> str:
    shown = ", ".join(items[:12])
    return f"{shown}, {len(items) - 12} more" if len(items) > 12 else shown
