"""From a case and its failure to the file a maintainer gets: one typed context, one template a format.

The formats: ``script`` fails while the bug is there and exits 0 once it is gone; ``pytest`` is the same as a test;
``issue`` is the text of a bug report with the script inside; ``bisect`` answers ``git bisect run`` with 0 (gone),
1 (there) or 125 (cannot tell). What is rendered imports torch, the backend's module and what the graph needs, never
fxminify; it is ASCII and has passed ``compile()`` before anybody sees it.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import jinja2

from .. import __version__
from ..backends import ambient, libraries
from ..backends.deaths import signal_name
from ..backends.spec import BackendSpec
from ..store.case import Blobs, Case, Json
from ..store.failure import Failure, Kind
from .action import Action, make_action
from .expressions import Unprintable
from .inputs import print_inputs
from .naming import OWN, RESERVED
from .source import print_graph
from .wording import actual, cell, distinctive, docstring, expected, headline, one_line, prose

FORMATS = MappingProxyType({"script": "script.py.j2", "pytest": "pytest.py.j2", "issue": "issue.md.j2",
                            "bisect": "bisect.py.j2"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """What a script says about itself besides its code.

    ``torch``, ``python`` and ``platform`` are versions (``2.13.0+cpu``, ``3.11``, ``Linux x86_64``), ``backend`` the
    backend's name and version where it is no part of torch. ``nodes`` counts the compute nodes of the capture before
    it was minified, ``queries`` how often the backend was asked, ``runs`` is what verification saw (``3 of 3``).
    ``timeout`` is the time in seconds after which a hang is one. ``equal_nan`` is False where eager is known to give
    no NaN. ``layers`` are backend, layer and result of an ablation, ``enters`` is its answer. ``matters`` are sentences
    about what the failure takes, the summary first; ``twin`` says how the nearest candidate that passes differs, in
    words and then in lines that begin with ``-`` or ``+``. ``models`` are name, why ONNX Runtime refused it, and text
    of the ONNX models that were made of the case.
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
    equal_nan: bool = True
    layers: tuple[tuple[str, str, str], ...] = ()
    enters: str = ""
    matters: tuple[str, ...] = ()
    twin: tuple[str, ...] = ()
    models: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    """A file's text and, with embedded data, the content of ``repro.safetensors`` beside it."""

    text: str
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """All that a template sees. Texts are finished source; lists hold its lines."""

    headline: str
    about: list[str]
    advice: str
    imports: list[str]
    setup: list[str]
    ambient: list[str]
    functions: str
    action: Action
    test: str
    hang: int
    dies: int
    needle: str
    timeout: int
    isolated: bool
    # The report alone.
    backend: str = ""
    expected: str = ""
    actual: str = ""
    log: str = ""
    versions: tuple[str, ...] = ()
    script: str = ""
    layers: tuple[tuple[str, ...], ...] = ()
    enters: str = ""
    matters: tuple[str, ...] = ()
    twin: tuple[str, ...] = ()
    models: tuple[tuple[str, str], ...] = ()


def render(case: Case, blobs: Blobs, *, format: str = "script", header: Header, embed: bool = False) -> Rendered:
    """Render ``case`` as a file.

    Raises `Unprintable`, of which `NeedsData` says that ``embed`` would do, and `CannotLoad` for a backend that cannot
    be had back.
    """
    context, data = _context(case, blobs, header, embed)
    if format == "issue":
        script = _fill("script", context).rstrip("\n")
        context = _report(context, header, script)
    elif format not in FORMATS:
        raise ValueError(f"{format!r} is no format; there are {', '.join(FORMATS)}")
    text = _fill(format, context)
    if not text.isascii():
        raise Unprintable("something in it is not ASCII")
    return Rendered(text, data)


def _context(case: Case, blobs: Blobs, header: Header, embed: bool) -> tuple[Context, bytes | None]:
    failure = header.failure
    spec = BackendSpec.from_json(case.backend)
    backend = spec.to_source(RESERVED)
    surroundings = ambient.to_source(case.context)
    imports, setup = _split(libraries.to_source(case.imports))
    setup = [*backend.setup, *setup]
    taken = OWN | backend.names | _bound([*imports, *setup])
    printed = print_graph(case, reserved=taken)
    names = {*taken, printed.name, *(c.name for c in printed.constants)}
    inputs = print_inputs(
        case,
        blobs,
        printed.parameters,
        constants={c.name: c.tensor for c in printed.constants},
        embed=embed,
        default_dtype=str(case.context.get("default_dtype", "float32")),
        reserved=names,
    )
    before = [f"earlier_{name}" for name in printed.parameters]
    earlier = [print_inputs(_call_before(case, call), blobs, before, reserved=names) for call in case.earlier]
    action = make_action(
        case, printed, inputs, failure, backend.arguments, surroundings.managers, earlier=earlier,
        equal_nan=header.equal_nan,
    )  # fmt: skip
    dies = failure.signal or 0
    hang = header.timeout if failure.kind is Kind.HANG else 0
    imports = [*imports, *backend.imports, *printed.imports, *inputs.imports]
    context = Context(
        headline=headline(case, failure),
        about=_about(case, header),
        advice=_advice(failure, hang),
        imports=_ordered([*imports, "import torch", *(["import signal"] if hang else [])]),
        setup=setup,
        ambient=surroundings.setup,
        functions=printed.text,
        action=action,
        test=_test_name(case, failure),
        hang=hang,
        dies=dies or (14 if hang else 0),
        needle=distinctive(failure),
        timeout=header.timeout,
        isolated=bool(dies or hang or failure.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY)),
    )
    return context, inputs.data


def _report(context: Context, header: Header, script: str) -> Context:
    failure = header.failure
    versions = [f"torch {header.torch}", header.backend, f"Python {header.python}", header.platform]
    return replace(
        context,
        expected=expected(failure),
        actual=actual(failure, header.timeout),
        log=one_line(failure.message, 2000, lines=20) if failure.kind is not Kind.DIVERGENCE else "",
        versions=tuple(v for v in versions if v.strip()),
        script=script,
        layers=tuple(tuple(cell(text) for text in row) for row in header.layers),
        enters=cell(header.enters),
        matters=tuple(prose(text) for text in header.matters),
        twin=tuple(one_line(text, 200).replace("`", "'") for text in header.twin),
        models=tuple((_about_model(name, error), _fenced(text)) for name, error, text in header.models),
    )


def _about_model(name: str, error: str) -> str:
    return cell(f"ONNX Runtime refused the model of the {name}: {error}" if error else f"The model of the {name}:")


def _fenced(text: str) -> str:
    """A text for a block of code, which it cannot end."""
    return one_line(text, 4000, lines=60).replace("```", "` ` `")


def _call_before(case: Case, call: Json) -> Case:
    """``case`` with the inputs of an earlier call, those alone that differ: the others are the last call's."""
    names = [node.name for node in case.graph.placeholders]
    return replace(case, inputs=tuple(call.get(n) for n in names))


def _about(case: Case, header: Header) -> list[str]:
    nodes = case.graph.count
    before = f" from {header.nodes} nodes to {nodes}" if header.nodes else ""
    calls = f" ({header.queries} oracle calls)" if header.queries else ""
    lines = [f"Minified by fxminify {__version__}{before}{calls}."]
    if header.signature:
        lines[0] += f" Signature {header.signature}."
    if cause := header.failure.root_cause():
        lines.insert(0, one_line(f"Cause: {cause}", 200))
    if header.failure.kind is not Kind.CRASH and (said := header.failure.diagnosis()):
        lines[:0] = textwrap.wrap(one_line(f"On standard error: {said}", 400), 118, break_on_hyphens=False)
    if header.runs:
        lines.append(f"It failed in {header.runs} fresh runs.")
    versions = [f"torch {header.torch}" if header.torch else "", header.backend]
    versions += [f"Python {header.python}" if header.python else "", header.platform]
    if any(versions):
        lines.append(one_line(", ".join(v for v in versions if v) + ".", 200))
    return [docstring(line) for line in lines]


def _advice(failure: Failure, hang: int) -> str:
    how = f"SIGALRM ends it after {hang} s" if hang else "it fails"
    if failure.signal and not hang:
        how = f"it dies of {signal_name(failure.signal)}"
    return f"Run it: {how} while the bug is there; exit code 0 means the bug is gone."


def _test_name(case: Case, failure: Failure) -> str:
    backend = re.sub(r"\W+", "_", str(case.backend.get("name", "")), flags=re.ASCII).strip("_")
    last = case.graph.compute[-1:]
    operator = re.sub(r"_\d+$", "", last[0].name).strip("_") if last else "graph"
    return "_".join(["test", *([backend] if backend else []), operator, str(failure.kind)])


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fxminify", "repro_templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # what is rendered is Python and Markdown
    )
    environment.filters["ascii"] = ascii
    return environment


def _fill(format: str, context: Context) -> str:
    text = _environment().get_template(FORMATS[format]).render(c=context)
    text = re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
    if FORMATS[format].endswith(".py.j2"):
        compile(text, f"<{format}>", "exec", dont_inherit=True)
    return text


def _split(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Import lines at the head, and the rest."""
    lines = list(lines)
    count = next((i for i, line in enumerate(lines) if not line.startswith(("import ", "from "))), len(lines))
    return lines[:count], lines[count:]


def _ordered(lines: Iterable[str]) -> list[str]:
    """Import lines once each: the standard library, torch, everything else; comments kept."""
    unique: dict[str, str] = {}
    for line in lines:
        statement = line.partition("  #")[0].strip()
        if len(line) >= len(unique.get(statement, "")):
            unique[statement] = line
    merged = sorted(s for s in unique if s.startswith("from math import "))
    if len(merged) > 1:
        names = ", ".join(s.removeprefix("from math import ") for s in merged)
        unique = {s: line for s, line in unique.items() if s not in merged} | {f"from math import {names}": ""}
        unique[f"from math import {names}"] = f"from math import {names}"
    standard = ("math", "operator", "os", "pathlib", "signal", "sys", "functools")
    rank = {"torch": 1, **dict.fromkeys(standard, 0)}
    return [unique[s] for s in sorted(unique, key=lambda s: (rank.get(s.split()[1].partition(".")[0], 2), len(s), s))]


def _bound(lines: Iterable[str]) -> frozenset[str]:
    """Names that the lines bind at top level."""
    names = set()
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {a.asname or a.name.partition(".")[0] for a in node.names}
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset(names)
