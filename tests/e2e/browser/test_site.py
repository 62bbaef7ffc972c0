"""The documentation site: built with warnings as errors, then read in a browser without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fxminify
from fxminify.docs import website

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(fxminify.__file__).parent
PAGES = ("index", "docs/api", "docs/architecture", "docs/security")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the Makefile builds it, elsewhere."""
    folder = tmp_path_factory.mktemp("site")
    makefile = (ROOT / "Makefile").read_text()
    (options,) = re.findall(r"^SPHINX = \$\(BIN\)/python -m sphinx (.+) -d build/doctrees$", makefile, re.MULTILINE)
    assert {"-n", "-W"} <= set(options.split())
    command = [sys.executable, "-m", "sphinx", *options.split(), "-d", str(folder / "doctrees"), "-b", "html", "."]
    subprocess.run([*command, str(folder / "html")], cwd=ROOT, check=True, timeout=900)
    return folder / "html"


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1600, 1760])
def test_pages_fit_and_ask_for_nothing_from_elsewhere(site: Path, browser: Browser, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 1000})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: complaints.append(r.url) if not r.url.startswith(site.as_uri()) else None)
    titles = []
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_selector("h1")
        titles.append(page.locator("h1").inner_text().rstrip("¶").strip())
        assert page.evaluate("document.documentElement.scrollWidth") == width, name
    context.close()
    assert titles == ["fxminify", "Python API", "Architecture", "Security"]
    assert complaints == []


@pytest.mark.slow
def test_the_navigation_leads_to_every_page(site: Path) -> None:
    front = (site / f"{website.FRONT}.html").read_text()
    assert [page for page in website.every_page()[1:] if f'href="{page}.html"' not in front] == []
    assert [page for page in website.every_page() if not (site / f"{page}.html").exists()] == []


@pytest.mark.slow
def test_the_reference_holds_docstrings_and_links_between_them(site: Path) -> None:
    text = (site / "docs/api.html").read_text()
    for name in fxminify.__all__:
        assert f'id="fxminify.{name}"' in text
    assert "Undo <a" in text, "a name in backticks is a link"
    assert "A failure that cannot be stored is a logged warning" in text


@pytest.mark.slow
def test_the_search_finds_a_function(site: Path, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{(site / 'search.html').as_uri()}?q=capturing")
    page.wait_for_selector("#search-results li")
    assert page.locator("#search-results li a", has_text="fxminify.capturing").count() >= 1
    context.close()


SETTINGS = """
from fxminify.docs import website

root_doc = "README"
extensions = ["myst_parser"]
myst_heading_anchors = 4
default_role = "py:obj"


def setup(app):
    app.connect("missing-reference", website.refer)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[there](#front)", ""),
        ("[gone](gone.md)", "cross-reference target not found: 'gone.md'"),
        ("[gone](#gone)", "target not found: 'gone'"),
        ("```{eval-rst}\n`fxminify.store.errors.StoreError` and `minify run`\n```", ""),
        ("```{eval-rst}\n`fxminify.store.errors.Gone`\n```", "reference target not found: fxminify.store.errors.Gone"),
    ],
    ids=["a heading", "no page", "no heading", "a name", "no name"],
)
def test_what_leads_nowhere_fails_the_build(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "README.md").write_text(f"# Front\n\n{text}\n")
    (tmp_path / "conf.py").write_text(SETTINGS)
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "-b", "html", ".", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr) == (int(bool(said)), True), done.stderr
