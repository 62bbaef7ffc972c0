"""Filling templates: ours, and one of a project's own.

A name that is not there is an error, never an empty place (`StrictUndefined`). A template from elsewhere is filled in
Jinja's sandbox: it may read what ``docs/templates.md`` lists and nothing else of this process.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .report import phrases
from .source.layout import ordered

if TYPE_CHECKING:
    from .render import Context

#: Longest text that a template may make, in characters.
LONGEST = 10 << 20


class TemplateError(Exception):
    """A template that cannot be filled; the text says where and why."""


@cache
def environment() -> jinja2.Environment:
    """Where our own templates are filled; what they make is Python, JSON and Markdown, so nothing is escaped."""
    found = jinja2.Environment(autoescape=False, **_options())
    _furnish(found)
    return found


def own(text: str, context: Context) -> str:
    """``text`` filled with ``context`` as ``c``; it may include ours by name. Raises `TemplateError`."""
    sandbox = ImmutableSandboxedEnvironment(autoescape=False, **_options())
    _furnish(sandbox)
    sandbox.globals.clear()  # no `range`: a loop is over what there is
    try:
        made: list[str] = []
        size = 0
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
    """``value`` as Python, strings in double quotes where they hold none."""
    if isinstance(value, list | tuple) and value:
        inner = ", ".join(map(_source, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    text = ascii(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text[0] == "'" and '"' not in text else text


def _options() -> dict[str, Any]:
    return {
        "loader": jinja2.PackageLoader("fxminify", "repro_templates/templates"),
        "undefined": jinja2.StrictUndefined,
        "trim_blocks": True,
        "lstrip_blocks": True,
        "keep_trailing_newline": True,
    }


def _furnish(found: jinja2.Environment) -> None:
    found.filters |= {
        "ascii": _source,
        "ordered": ordered,
        "json": lambda value: json.dumps(value, indent=1, ensure_ascii=True),
        "code": phrases.code,
        "fence": phrases.fence,
        "cell": phrases.cell,
        "markdown": phrases.markdown,
    }
