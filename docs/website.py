"""The documentation site: the order of its pages, the picture of the packages, and references in docstrings

The pages are read on GitHub as well, so they hold plain Markdown; what only the site needs is added here.
"""

from __future__ import annotations

import builtins
import importlib
import re
from collections.abc import Collection
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxminify.backends.drawing.svg import STYLE, Box, Edge, svg

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
FRONT = "README"
#: The order of the pages. A page of docs/ that is not named here stands in the last group.
GROUPS: dict[str, tuple[str, ...]] = {
    "Tutorial": ("docs/terminal", "docs/gallery"),
    "How to": (
        "docs/guide",
        "docs/faq",
        "docs/hunt",
        "docs/ci",
        "docs/service",
        "docs/agents",
        "docs/skill/SKILL",
        "docs/shipped",
        "docs/extending",
    ),
    "Reference": (
        "docs/cli",
        "docs/answers",
        "docs/report",
        "docs/reference",
        "docs/api",
        "docs/format",
        "docs/templates",
        "docs/glossary",
        "docs/versions",
        "docs/devices",
        "CHANGELOG",
    ),
    "Explanation": ("docs/security", "docs/signatures", "docs/reduction", "docs/benchmarks", "benchmarks/README"),
    "Contribute": ("CONTRIBUTING", "docs/architecture", "docs/modules"),
}
OTHERS, NOTES = "More", "Decisions"


def navigation() -> dict[str, tuple[str, ...]]:
    """The pages of each group of the site's navigation, by heading. The front page is in none."""
    named = {page for group in GROUPS.values() for page in group}
    others = tuple(page for page in _pages("docs") if page not in named)
    groups = {**GROUPS, OTHERS: others, NOTES: _pages("docs/notes")}
    return {heading: group for heading, group in groups.items() if group}


def every_page() -> list[str]:
    """All pages, the front page first."""
    return [FRONT, *(page for group in navigation().values() for page in group)]


def _pages(folder: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{path.stem}" for path in sorted((ROOT / folder).glob("*.md")))


def contents() -> str:
    """The navigation as the hidden tables of contents of the front page."""
    parts = []
    for heading, group in navigation().items():
        lines = "\n".join(f"/{page}" for page in group)
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {heading}\n:maxdepth: 1\n\n{lines}\n```\n")
    return "\n".join(parts)


class InvalidPicture(ValueError):
    """A Mermaid block that is no flowchart from the top down of boxes, arrows and subgraphs."""


def drawn(flowchart: str) -> str:
    """A Mermaid flowchart as HTML: a picture of what is outside of its subgraphs, then one of each subgraph.

    A label has letters, digits and spaces. GitHub draws Mermaid with a script from the network, which the site must not
    need. Raises `InvalidPicture`.
    """
    start, *lines = [line.strip() for line in flowchart.strip().splitlines()]
    if start != "flowchart TB":
        raise InvalidPicture(f"only a flowchart TB is drawn, not {start!r}")
    labels: dict[str, str] = {}
    edges: dict[str, list[tuple[str, str]]] = {"": []}
    inside = ""
    for line in lines:
        if line == "end":
            inside = ""
        elif found := re.fullmatch(r"subgraph (\w+)", line):
            inside = found[1]
            edges[inside] = []
        elif found := re.fullmatch(r"(\w+)\[([\w ]+)\]", line):
            labels[found[1]] = found[2]
        elif found := re.fullmatch(r"(\w+) --> (\w+)", line):
            edges[inside].append((found[1], found[2]))
        else:
            raise InvalidPicture(f"a line that is not understood: {line!r}")
    members = {group: [name for name in labels if name.startswith(f"{group}_")] for group in edges if group}
    title = "The layers" if members else ""
    parts = [_picture(sorted({end for edge in edges[""] for end in edge}), edges[""], labels, title)]
    parts += [_picture(names, edges[group], labels, f"Inside {group}") for group, names in members.items()]
    return f"<style>{STYLE}</style>\n" + "\n".join(parts)


def _picture(names: list[str], edges: list[tuple[str, str]], labels: dict[str, str], title: str) -> str:
    above: dict[str, list[str]] = {name: [a for a, b in edges if b == name] for name in sorted(names)}
    order = list(TopologicalSorter(above).static_order())
    boxes = [Box((labels.get(name, name),)) for name in order]
    drawing = svg(boxes, [Edge(order.index(a), order.index(b)) for a, b in edges], label=title)
    caption = f"<figcaption>{title}</figcaption>" if title else ""
    return f'<figure class="packages">{caption}<div>{drawing}</div></figure>'


def read(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to the text of a page what only the site needs."""
    if page == FRONT:
        source[0] += f"\n{contents()}"
    source[0] = _MERMAID.sub(lambda block: f"```{{raw}} html\n{drawn(block[1])}\n```\n", source[0])


_MERMAID = re.compile(r"^```mermaid\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def refer(app: Sphinx, env: Any, node: Any, text: Any) -> Any:
    """What a name becomes that Sphinx itself does not find: a link, plain code, or None, which is an error."""
    from sphinx.util.nodes import make_refnode

    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"])
    documented = env.get_domain("py").objects
    name = meant(target, documented)
    if name is not None:
        place = documented[name]
        return make_refnode(app.builder, node["refdoc"], place.docname, place.node_id, text)
    in_docstring, _, _ = (node.source or "").partition(":docstring of ")
    if node["reftype"] == "obj" and is_broken(target, in_docstring):
        return None
    return text


def meant(target: str, documented: Collection[str]) -> str | None:
    """The full name of what ``target`` is short for: a name of the package, or the only one that ends so."""
    if f"fxminify.{target}" in documented:
        return f"fxminify.{target}"
    found = [name for name in documented if name.endswith(f".{target}")]
    return found[0] if len(found) == 1 else None


#: What a name begins with that is meant as one of this package.
_OURS = ("fxminify.", "backends.", "minifier.", "repro_templates.", "store.")


def is_broken(target: str, file: str) -> bool:
    """Whether a docstring in ``file`` says a name of this package that there is not.

    A text in backticks may also be a command or a parameter: only what begins as a module of ours, and what looks like
    a class, must exist, in the module, in one beside it, or in a package of somebody else.
    """
    if target.startswith(_OURS):
        return not _exists(f"fxminify.{target.removeprefix('fxminify.')}")
    if not re.fullmatch(r"(\w+\.)*[A-Z]\w*[a-z]\w*(\.\w+)*", target) or not file.endswith(".py"):
        return False
    names = target.split(".")
    module = Path(file).resolve().relative_to(ROOT).with_suffix("")
    here = ".".join(("fxminify", *module.parts)).removesuffix(".__init__")
    if _member(importlib.import_module(here), names) is not _MISSING or _member(builtins, names) is not _MISSING:
        return False
    beside = ".".join(("fxminify", *module.parent.parts))
    return not _exists(f"{beside}.{target}") and find_spec(names[0]) is None


def _exists(path: str) -> bool:
    """Whether ``path`` names a module, or something in one."""
    names = path.split(".")
    for count in range(len(names), 0, -1):
        try:
            module = importlib.import_module(".".join(names[:count]))
        except ModuleNotFoundError:
            continue
        return _member(module, names[count:]) is not _MISSING
    return False


_MISSING = object()


def _member(value: Any, names: list[str]) -> Any:
    """What ``names`` lead to, one after the other; an annotated name need have no value."""
    for name in names:
        value = getattr(value, name, getattr(value, "__annotations__", {}).get(name, _MISSING))
    return value


def begin_at_front(app: Sphinx, error: Exception | None) -> None:
    """A folder is opened at ``index.html``."""
    if error is None and app.builder.name == "html":
        Path(app.outdir, "index.html").write_text(
            f'<!doctype html><meta charset="utf-8"><title>fxminify</title>'
            f'<meta http-equiv="refresh" content="0; url={FRONT}.html"><a href="{FRONT}.html">fxminify</a>\n'
        )
