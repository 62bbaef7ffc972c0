"""The documentation site, as far as that can be told without building it: its navigation and its reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fxminify
from fxminify.cli import VERBS
from fxminify.docs import website

ROOT = Path(fxminify.__file__).parent
REFERENCE = (ROOT / "docs" / "api.md").read_text()
NAMED = set(re.findall(r"^\.\. (?:auto|py:)\w+:: (\S+)", REFERENCE, re.MULTILINE))


def test_the_navigation_names_every_page_once() -> None:
    pages = website.every_page()
    documents = [path for folder in ("docs", "docs/notes") for path in (ROOT / folder).glob("*.md")]
    assert {str(path.relative_to(ROOT).with_suffix("")) for path in documents} <= set(pages)
    assert sorted(pages) == sorted(set(pages))
    assert [page for page in pages if not (ROOT / f"{page}.md").exists()] == [], "docs/website.py names a page too many"


def test_a_new_page_stands_under_a_heading_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs/notes").mkdir(parents=True)
    (tmp_path / "docs/new.md").write_text("# New\n")
    monkeypatch.setattr(website, "ROOT", tmp_path)
    assert website.navigation()[website.OTHERS] == ("docs/new",)
    assert "\n/docs/new\n" in website.contents()


def test_every_public_name_is_in_the_reference() -> None:
    assert {f"fxminify.{name}" for name in fxminify.__all__} - NAMED == set()


def test_what_other_packages_extend_is_in_the_reference() -> None:
    """The names that the examples of docs/extending.md import."""
    text = (ROOT / "docs/extending.md").read_text()
    examples = re.findall(r"^ +from (fxminify\.[\w.]+) import (.+)$", text, re.MULTILINE)
    imported = {f"{module}.{name.strip()}" for module, names in examples for name in names.split(",")}
    assert "fxminify.backends.adapters.BackendAdapter" in imported
    assert imported - NAMED == set()


def test_a_flowchart_is_drawn_from_the_top_down() -> None:
    lines = [
        "flowchart TB",
        "cli --> floor",
        "subgraph floor",
        "floor_b[b]",
        "floor_a[a]",
        "floor_a --> floor_b",
        "end",
    ]
    drawing = website.drawn("\n".join(lines))
    layers, inside = re.findall(r"<figcaption>(.*?)</figcaption>", drawing)
    assert (layers, inside) == ("The layers", "Inside floor")
    assert drawing.index(">cli<") < drawing.index(">floor<") < drawing.index(">a<") < drawing.index(">b<")
    with pytest.raises(website.InvalidPicture, match="only a flowchart TB is drawn, not 'sequenceDiagram'"):
        website.drawn("sequenceDiagram\n a->>b: hello\n")
    with pytest.raises(website.InvalidPicture, match="a line that is not understood: 'a --- b'"):
        website.drawn("flowchart TB\n a --- b\n")


def test_the_picture_of_a_fleet_is_drawn_and_names_verbs() -> None:
    (chart,) = re.findall(r"```mermaid\n(.*?)```", (ROOT / "docs/service.md").read_text(), re.DOTALL)
    drawing = website.drawn(chart)
    assert "<figcaption>" not in drawing
    assert drawing.index(">each job<") < drawing.index(">minify serve<") < drawing.index(">minify work<")
    assert {"serve", "work"} <= {verb.name for verb in VERBS}


def test_a_short_name_means_one_thing() -> None:
    documented = ["fxminify.minify", "fxminify.store.index.Index", "a.Captures.get", "a.Bugs.get", "a.Bugs.minify"]
    assert website.meant("minify", documented) == "fxminify.minify"
    assert website.meant("Index", documented) == website.meant("store.index.Index", documented) == documented[1]
    assert website.meant("Bugs.get", documented) == "a.Bugs.get"
    assert website.meant("get", documented) is None
    assert website.meant("et", documented) is None


OPTIONS = str(ROOT / "minifier/session/options.py")


@pytest.mark.parametrize(
    ("target", "broken"),
    [
        ("fxminify.store.errors.StoreError", False),
        ("backends.adapters.BackendAdapter.warm", False),
        ("store.index.tables.State.PENDING", False),
        ("fxminify.store.errors.StoreProblem", True),
        ("minifier.nowhere.Thing", True),
        ("MinifyOptions", False),
        ("ValueError", False),
        ("results.MinifyResult", False),
        ("pytest.MonkeyPatch", False),
        ("MinifyOption", True),
        ("results.Gone", True),
        ("MinifyOptions.job", True),
        ("minify run", False),
        ("budget", False),
    ],
)  # fmt: skip
def test_a_name_in_a_docstring_exists_where_it_looks_like_one_of_ours(target: str, broken: bool) -> None:
    assert website.is_broken(target, OPTIONS) is broken
