"""`minify report --what-is-inside`: what leaves this machine with a report, and what does not.

It reads the files that would be sent and the case they were made from, and lists their content for the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...backends.provenance.spec import BackendSpec
from ...repro_templates.privacy import revealing
from ...repro_templates.report.html import FailureReport
from ...repro_templates.report.phrases import one_line
from ...store.document.case import Case, operators
from ...store.document.program_lines import comes_from
from ...store.failure import Failure
from ...store.text import count

#: What is never in a report.
NEVER = (
    "the program, its weights and its data beyond the values named above",
    "the graph as it was captured",
    "directories, host and user names, values of the environment",
)


def listing(case: Case, failure: Failure | None, files: Mapping[str, bytes], *, renamed: bool) -> dict[str, list[str]]:
    """Three lists of sentences: ``inside``, ``look_at`` (to check before sending), and ``not_inside``."""
    parts = ["its type and message"] if failure is not None and failure.message else []
    parts += [f"the places of {len(failure.frames)} frames, in files of packages"] if failure and failure.frames else []
    inside = [
        f"graph: {_few(_operators(case))}",
        "names: neutral ones" if renamed else f"names, as in the program: {_few(_names(case))}",
        *([f"places in the program: {lines}"] if not renamed and (lines := comes_from(case.graph)) else []),
        *_values(case),
        *_backend(case),
        *([f"error: {' and '.join(parts)}, without paths"] if parts else []),
        "versions of torch, Python, the packages the backend stands on, the operating system and the processor",
    ]
    inside += [f"file {name}: {len(content):,} bytes of captured values"
               for name, content in files.items() if name.endswith(".safetensors")]  # fmt: skip
    look = [f"{name}: {what}" for name, content in files.items() if not name.endswith(".safetensors")
            for what in dict.fromkeys(revealing(content.decode("utf-8", "replace")))]  # fmt: skip
    return {"inside": [one_line(text, 300) for text in inside], "look_at": look, "not_inside": list(NEVER)}


def page_listing(report: FailureReport, page: str) -> dict[str, list[str]]:
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
    look = list(dict.fromkeys(f"the page: {what}" for what in revealing(page)))
    never = [text for text in NEVER if "graph as it was captured" not in text]
    return {"inside": inside, "look_at": look, "not_inside": never}


def lines(found: Mapping[str, list[str]]) -> list[str]:
    """`listing` for a terminal."""
    heads = {"inside": "Inside:", "look_at": "Look at this before you send it:", "not_inside": "Not inside:"}
    return [line for key, head in heads.items() if found[key] for line in (head, *(f"  {text}" for text in found[key]))]


def _operators(case: Case) -> list[str]:
    called = [str(next(iter(n.target.values()))) if isinstance(n.target, dict) else str(n.target)
              for n in case.graph.compute]  # fmt: skip
    return list(dict.fromkeys([*called, *operators(case.graph)]))


def _names(case: Case) -> list[str]:
    return [str(node.target) for node in case.graph.placeholders] + list(case.graph.attrs)


def _values(case: Case) -> list[str]:
    """Which values of tensors are printed."""
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
        out.append(f"source of yours: {len(spec.source.text.splitlines())} lines that define the backend")
    out += [f"source of yours: {len(str(item['source']).splitlines())} lines that define an operator"
            for item in case.imports if "source" in item]  # fmt: skip
    return out + (["options of the backend"] if spec.options is not None else [])


def _few(items: list[str]) -> str:
    shown = ", ".join(items[:12])
    return f"{shown}, {len(items) - 12} more" if len(items) > 12 else shown
