"""From a case and its failure to the file a maintainer gets: one typed context, one template a format.

The formats: ``script`` fails while the bug is there and exits 0 once it is gone; ``pytest`` is the same as a test;
``issue`` is the text of a bug report with the script inside; ``bisect`` answers ``git bisect run`` with 0 (gone),
1 (there) or 125 (cannot tell). What is rendered imports torch, the backend's module and what the graph needs, never
fxminify; it is ASCII and has passed ``compile()`` before anybody sees it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ..backends.provenance import libraries
from ..backends.provenance.spec import BackendSpec
from ..backends.running import ambient
from ..store.document.case import Blobs, Case, Json
from ..store.failure import Failure, FailureKind
from .environment import environment, own
from .header import Figures, about, advice, figures, first_node, needs, requirements, story, sure, system, versions
from .header import Header as Header
from .notebook import cells
from .report.phrases import (
    actual,
    distinctive,
    exit_codes,
    expected,
    fence,
    headline,
    log,
    one_line,
    prose,
    raised,
    summary,
    title,
)
from .report.phrases import code as markdown_code
from .source.action import DEVICE, Action, accelerator, make_action, memory_limit, with_device
from .source.expressions import Unprintable
from .source.function import print_graph
from .source.inputs import print_inputs
from .source.layout import bound, ordered, spaced, split
from .source.naming import OWN, RESERVED, identifier

FORMATS = MappingProxyType({"script": "script.py.j2", "pytest": "pytest.py.j2", "issue": "issue.md.j2",
                            "notebook": "notebook.ipynb.j2", "bisect": "bisect.py.j2"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rendered:
    """A file's text and, with embedded data, the content of ``repro.safetensors`` beside it."""

    text: str
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """All that a template sees, documented in ``docs/templates.md``. Texts are finished source; lists hold its lines.

    What comes from a capture is text of strangers: the templates put it through ``code``, ``fence``, ``cell`` or
    ``ascii`` wherever it is not yet source.
    """

    headline: str
    about: list[str]
    advice: str
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
    backend: str
    expected: str
    actual: str
    sure: str
    tentative: str
    log: str
    figures: list[Figures]
    first: str
    layers: tuple[tuple[str, ...], ...]
    enters: str
    matters: list[str]
    twin: list[str]
    models: list[tuple[str, str]]
    story: str
    steps: tuple[tuple[str, int, int], ...]
    versions: list[str]
    system: str
    needs: str
    #: The script, in every format but the script itself.
    script: str = ""


def render(
    case: Case, blobs: Blobs, *, format: str = "script", header: Header, embed: bool = False, template: str = ""
) -> Rendered:
    """Render ``case`` as a file, of ``format`` or with the text of a ``template`` of your own.

    Raises `Unprintable`, of which `NeedsData` says that ``embed`` would do, `CannotLoad` for a backend that cannot
    be had back, and `TemplateError` for a template that cannot be filled.
    """
    if format not in FORMATS:
        raise ValueError(f"{format!r} is no format; there are {', '.join(FORMATS)}")
    context, data = _context(case, blobs, header, embed)
    if format != "script" or template:
        context = replace(context, script=_fill(FORMATS["script"], context).rstrip("\n"))
    if template:
        return Rendered(own(template, context), data)
    text = _fill(FORMATS[format], context)
    if not text.isascii():
        raise Unprintable("something in it is not ASCII")
    return Rendered(text, data)


def _context(case: Case, blobs: Blobs, header: Header, embed: bool) -> tuple[Context, bytes | None]:
    failure = header.failure
    spec = BackendSpec.from_json(case.backend)
    backend = spec.to_source(RESERVED)
    try:
        surroundings = ambient.to_source(case.context)
    except ValueError as error:
        raise Unprintable(str(error)) from error
    imports, setup = split(libraries.to_source(case.imports))
    setup = [*backend.setup, *setup]
    taken = OWN | backend.names | bound([*imports, *setup])
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
        equal_nan=header.equal_nan, summed=header.summed,
    )  # fmt: skip
    dies = failure.signal or 0
    hang = header.timeout if failure.kind is FailureKind.HANG else 0
    imports = [*imports, *backend.imports, *printed.imports, *inputs.imports]
    limit = memory_limit(case, failure)
    setup = [limit, "", *setup] if limit and setup else [limit] if limit else setup
    imports = ordered(
        [*imports, "import torch", *(["import signal"] if hang else []), *(["import resource"] if limit else [])]
    )
    functions = printed.text
    if only := accelerator(case):
        setup = [
            f'{DEVICE} = "{only}"  # the one line to change to run it elsewhere',
            *([""] if setup else []),
            *setup,
        ]
        functions = with_device(functions, only)
        action = Action(with_device(action.inputs, only), with_device(action.body, only))
    lines, how = about(case, header), advice(failure, hang)
    alarm = [f"signal.alarm({hang})"] if hang else []
    code = ["\n".join([*imports, "", *alarm, *setup, *surroundings.setup]), functions, action.inputs, action.body]
    first = headline(case, failure)
    context = Context(
        headline=first,
        about=lines,
        advice=how,
        imports=imports,
        setup=setup,
        ambient=surroundings.setup,
        functions=functions,
        action=action,
        test=_test_name(case, failure),
        raises=raised(failure),
        reason=one_line(f"{case.backend.get('name', 'backend')}: {failure.headline()}", 100),
        hang=hang,
        dies=dies or (14 if hang else 0),
        codes=(0, *exit_codes(failure)),
        needle=" ".join(distinctive(failure).split()),
        timeout=header.timeout,
        isolated=bool(dies or hang or failure.kind in (FailureKind.CRASH, FailureKind.OUT_OF_MEMORY)),
        requirements=requirements(header),
        cells=cells([f"### {markdown_code(first)}", "", fence("\n".join([*lines, how]))], code),
        **_sentences(case, header),
    )
    return context, inputs.data


def _sentences(case: Case, header: Header) -> dict[str, Any]:
    """The part of the context that is about the failure, not the code."""
    failure = header.failure
    named = title(case, failure)
    return {
        "title": named,
        "comment": named.replace("-", "- ").replace(">", ""),
        "summary": summary(case, failure),
        "backend": one_line(str(case.backend.get("name", "")), 80),
        "expected": expected(failure),
        "actual": actual(failure, header.timeout),
        "sure": sure(header),
        "tentative": one_line(header.tentative, 300),
        "log": log(failure),
        "figures": list(figures(failure)),
        "first": first_node(header.first),
        "layers": header.layers,
        "enters": header.enters,
        "matters": [prose(text) for text in header.matters],
        "twin": [one_line(text, 200) for text in header.twin],
        "models": [(_about_model(name, error), one_line(text, 4000, lines=60)) for name, error, text in header.models],
        "story": story(case, header),
        "steps": header.steps,
        "versions": versions(header),
        "system": system(header),
        "needs": needs(header.installed),
    }


def _about_model(name: str, error: str) -> str:
    return prose(f"ONNX Runtime refused the model of the {name}: {error}" if error else f"The model of the {name}:")


def _call_before(case: Case, call: Json) -> Case:
    """``case`` with the inputs of an earlier call, those alone that differ: the others are the last call's."""
    names = [node.name for node in case.graph.placeholders]
    return replace(case, inputs=tuple(call.get(n) for n in names))


def _test_name(case: Case, failure: Failure) -> str:
    backend = identifier(one_line(str(case.backend.get("name", "")), 60)) if case.backend.get("name") else ""
    last = case.graph.compute[-1:]
    target = last[0].target if last else "graph"
    called = str(next(iter(target.values()), "") if isinstance(target, dict) else target).removesuffix(".default")
    operator = identifier(re.split(r"\W+", called)[-1].strip("_"))
    return "_".join(["test", *([backend] if backend else []), operator, str(failure.kind)])


def _fill(template: str, context: Context) -> str:
    text = environment().get_template(template).render(c=context)
    text = _close(text).strip("\n") + "\n"
    if context.script:  # the gaps of a script that stands in another format are its own
        text = text.replace(_close(context.script), context.script)
    if template.endswith(".py.j2"):
        compile(text, f"<{template}>", "exec", dont_inherit=True)
        text = spaced(text)
    return text


def _close(text: str) -> str:
    """``text`` without the wide gaps that parts of a template leave where they have nothing to say."""
    return re.sub(r"\n{3,}", "\n\n", text)
