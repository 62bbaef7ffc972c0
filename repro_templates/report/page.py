"""Shared parts of the HTML report and the pages of `minify serve`: templates, filters, style, script, policy.

Jinja escapes every text, and every text is masked by value and by shape (`fxminify.store.privacy`): only a script, and
what a template names as `exact`, as the address of a page, stays as it is. Pictures and highlighted code are markup
from modules of ours, which escape texts, too. Style and script stand in the page, and a Content-Security-Policy names
them by their hashes, so nothing else can run.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources

import jinja2
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import DiffLexer, PythonLexer, get_lexer_by_name

from ...backends.drawing import svg as drawing
from ...store.failure import kind_in_words
from ...store.privacy import private
from ...store.text import count, printable
from .phrases import points_to, without_paths

#: The folder of this package with the templates of texts and reports.
FOLDER = "repro_templates/templates"
#: Graphs of more nodes can be searched.
SEARCHED = 20
#: The most characters of a text that is highlighted.
LONGEST = 400_000


@dataclass(frozen=True, slots=True)
class Look:
    """The style and the script of a page, and the names by which a policy allows them."""

    style: Markup
    script: Markup
    style_hash: str
    script_hash: str


@cache
def look(*names: str, beside: str = FOLDER) -> Look:
    """Return the style and script of the template files ``names``, in this order.

    A file lies in the folder ``beside`` of this package or in `FOLDER`.
    """
    texts = {name: _resource(name, beside) for name in names}
    style = "".join(text for name, text in texts.items() if name.endswith(".css"))
    style = style.replace("/* graphs */", drawing.STYLE)
    script = "".join(text for name, text in texts.items() if name.endswith(".js"))
    return Look(Markup(style), Markup(script), _hash(style), _hash(script))


@cache
def environment(beside: str = FOLDER) -> jinja2.Environment:
    """The environment of templates of pages, which lie in the folder ``beside`` of this package and in `FOLDER`."""
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("fxminify", folder) for folder in (beside, FOLDER)]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    made.filters |= {
        "exact": _exact,
        "python": partial(_highlighted, lexer=PythonLexer(stripnl=False)),
        "difference": _difference, "highlighted": _in_language,
        "drawn": Markup,  # a picture of ours, in which every text is escaped already
        "count": count, "kind": kind_in_words, "image_address": _image_address, "points_to": points_to,
        "minute": minute, "shortened": partial(without_paths, length=300),
    }  # fmt: skip
    made.globals["searched"] = SEARCHED
    made.finalize = _finalize
    return made


def _finalize(value: object) -> object:
    return private(printable(value, "\n\t")) if type(value) is str else value


def minute(time: str) -> str:
    """An ISO time (UTC) as people read it."""
    return time[:16].replace("T", " ")


def _exact(value: object) -> Markup:
    """An address, a key of a form or what the reader typed: escaped, and not masked."""
    return Markup.escape(printable(str(value), "\n\t"))


def _difference(text: str) -> Markup:
    return _highlighted(private(printable(text, "\n\t")), DiffLexer(stripnl=False))


def _in_language(text: str, language: str) -> Markup:
    return _highlighted(text, get_lexer_by_name(language, stripnl=False))


def _highlighted(text: str, lexer: PythonLexer | DiffLexer) -> Markup:
    text = printable(text, "\n\t")
    if len(text) > LONGEST:
        return Markup.escape(f"{text[:LONGEST]}\n[...]")
    return Markup(highlight(text, lexer, HtmlFormatter(nowrap=True, classprefix="c-")).rstrip("\n"))


def _image_address(svg: str) -> str:
    """A ``data:`` address of a picture from an index, which is shown as an image, so that nothing in it runs."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8", "replace")).decode()


def _resource(name: str, beside: str) -> str:
    files = [resources.files("fxminify").joinpath(*folder.split("/"), name) for folder in (beside, FOLDER)]
    return next(file for file in files if file.is_file()).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
