"""Render a case and its failure as a file for a maintainer: a typed context fills the template of a format.

A rendered file imports torch, the backend's module and what the graph needs, but not fxminify. It is ASCII, and Python
source has passed ``compile()``. If a template uses an unknown name, that is an error (`StrictUndefined`). A template
that a person wrote is filled in Jinja's sandbox, where it can only read what ``docs/templates.md`` lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..backends.provenance import libraries, variables
from ..backends.provenance.spec import BackendSpec
from ..backends.running import ambient
from ..store.document.case import Blobs, Case, Json
from ..store.failure import Failure, FailureKind
from .comment import shortened
from .context import Context, Header, about, advice, passes, requirements, sentences
from .formats import OURS, PACKAGE, Format, find
from .notebook import cells
from .report import phrases
from .report.phrases import distinctive, exit_codes, fence, headline, one_line, raised
from .source.action import DEVICE, Action, accelerator, make_action, memory_limit, with_device
from .source.expressions import Unprintable
from .source.function import print_graph
from .source.inputs import SIDE_FILE, print_inputs
from .source.layout import bound, ordered, spaced, split
from .source.naming import OWN, RESERVED, identifier

#: The end of the docstring of a script, in which three double quotes stand nowhere else.
_END_OF_DOCSTRING = '\n"""\n'
#: The most characters of a text made by a person's own template.
LONGEST = 10 << 20


class TemplateError(Exception):
    """A template cannot be filled. The message says where and why."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of a file, and the files beside it: embedded data, or the script that a comment has no room for."""

    text: str
    files: Mapping[str, bytes] = field(default_factory=dict)


def render(
    case: Case, blobs: Blobs, *, format: str = "script", header: Header, embed: bool = False, template: str = ""
) -> Rendered:
    """Render ``case`` as a file, of ``format`` or with the text of a ``template`` of your own.

    Raises `UnknownFormat`, `Unprintable`, of which `NeedsData` says that ``embed`` would do, `CannotLoad` for a backend
    that cannot be loaded from another process, and `TemplateError` for a template that cannot be filled.
    """
    row = find(format)
    context, data = _context(case, blobs, header, embed)
    files = {} if data is None else {SIDE_FILE: data}
    if format != "script" or template:
        script = _fill(OURS["script"], context).rstrip("\n")
        program = script.partition(_END_OF_DOCSTRING)[2].lstrip("\n")
        context = replace(context, script=script, program=program, short_program=shortened(program, header.findings))
    if template:
        return Rendered(_fill_own(template, context), files)
    if format == "comment" and not context.short_program:
        files |= {OURS["script"].file: f"{context.script}\n".encode()}
    text = _fill(row, context)
    if not text.isascii():
        raise Unprintable("something in it is not ASCII")
    return Rendered(text, files)


def _context(case: Case, blobs: Blobs, header: Header, embed: bool) -> tuple[Context, bytes | None]:
    failure = header.failure
    spec = BackendSpec.from_json(case.backend)
    backend = spec.to_source(RESERVED)
    try:
        surroundings = ambient.to_source(case.context)
    except ValueError as error:
        raise Unprintable(str(error)) from error
    imports, setup = split(libraries.to_source(case.imports, spec.source))
    setup = [*backend.setup, *([""] if backend.setup and setup else []), *setup]
    environment = variables.lines(spec.environment, spec.required)
    taken = OWN | backend.names | bound([*environment, *imports, *setup])
    printed = print_graph(case, reserved=taken, public=header.public)
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
        summed=header.summed,
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
    lines, how = about(case, header), advice(header, hang, required=bool(spec.required))
    alarm = [f"signal.alarm({hang})"] if hang else []
    head = [*environment, "", *(line for line in imports if line not in environment), "", *alarm]
    code = ["\n".join([*head, *setup, *surroundings.setup]).strip("\n"), functions, action.inputs, action.body]
    first = headline(case, failure)
    context = Context(
        headline=first,
        about=lines,
        advice=how,
        passes=passes(header),
        environment=environment,
        sets=dict(spec.environment),
        required=list(spec.required),
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
        isolated=bool(
            dies or hang or spec.environment or failure.kind in (FailureKind.CRASH, FailureKind.OUT_OF_MEMORY)
        ),
        requirements=requirements(header),
        beside=[] if inputs.data is None else [SIDE_FILE],
        cells=cells([f"### {phrases.code(first)}", "", fence("\n".join([*lines, how]))], code),
        **sentences(case, header),
    )
    return context, inputs.data


def _call_before(case: Case, call: Json) -> Case:
    """``case`` with only those inputs of an earlier call that differ from the last call's."""
    names = [node.name for node in case.graph.placeholders]
    return replace(case, inputs=tuple(call.get(n) for n in names))


def _test_name(case: Case, failure: Failure) -> str:
    backend = identifier(one_line(str(case.backend.get("name", "")), 60)) if case.backend.get("name") else ""
    last = case.graph.compute[-1:]
    target = last[0].target if last else "graph"
    called = str(next(iter(target.values()), "") if isinstance(target, dict) else target).removesuffix(".default")
    operator = identifier(re.split(r"\W+", called)[-1].strip("_"))
    return "_".join(["test", *([backend] if backend else []), operator, str(failure.kind)])


def _fill(format: Format, context: Context) -> str:
    """The text of ``format``. Raises `TemplateError` if a template of another package is wrong."""
    try:
        text = _environment(format.package).get_template(format.template).render(c=context)
        text = _close(text).strip("\n") + "\n"
        sources = (context.script, context.program, context.short_program)
        for whole in filter(None, sources):  # the gaps in them are their own
            text = text.replace(_close(whole), whole)
        if format.language == "python":
            compile(text, f"<{format.template}>", "exec", dont_inherit=True)
            text = spaced(text)
    except Exception as error:
        if format.package == PACKAGE:
            raise
        raise TemplateError(f"the format {format.name} of {format.package}: {type(error).__name__}: {error}") from error
    return text


def _close(text: str) -> str:
    """``text`` without the blank lines that empty parts of a template leave."""
    return re.sub(r"\n{3,}", "\n\n", text)


@cache
def _environment(package: str) -> jinja2.Environment:
    """The Jinja environment for the templates of ``package``, which may include ours. It escapes nothing."""
    loaders = [jinja2.PackageLoader(package), *([jinja2.PackageLoader(PACKAGE)] if package != PACKAGE else [])]
    return _furnished(jinja2.Environment(autoescape=False, loader=jinja2.ChoiceLoader(loaders), **_OPTIONS))


def _fill_own(text: str, context: Context) -> str:
    """``text`` filled with ``context`` as ``c``; it may include ours by name. Raises `TemplateError`."""
    loader = jinja2.PackageLoader(PACKAGE)
    sandbox = _furnished(ImmutableSandboxedEnvironment(autoescape=False, loader=loader, **_OPTIONS))
    sandbox.globals.clear()  # no `range`: a loop is over what there is
    made: list[str] = []
    size = 0
    try:
        for part in sandbox.from_string(text).generate(c=context):
            size += len(part)
            if size > LONGEST:
                raise TemplateError(f"it makes more than {LONGEST:,} characters")
            made.append(part)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno}: {error.message}") from error
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise TemplateError(str(error) or type(error).__name__) from error
    return "".join(made)


def _source(value: object) -> str:
    """The source of ``value``. Strings without double quotes are in double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_source(key)}: {_source(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple) and value:
        inner = ", ".join(map(_source, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    text = ascii(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text[0] == "'" and '"' not in text else text


_OPTIONS: dict[str, Any] = {
    "undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True,
}  # fmt: skip


def _furnished(environment: jinja2.Environment) -> jinja2.Environment:
    environment.filters |= {
        "ascii": _source,
        "ordered": ordered,
        "json": lambda value: json.dumps(value, indent=1, ensure_ascii=True),
        "code": phrases.code,
        "fence": phrases.fence,
        "cell": partial(phrases.markdown, length=120),
        "markdown": phrases.markdown,
    }
    return environment
