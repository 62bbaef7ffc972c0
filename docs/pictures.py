"""Take the pictures of `docs/pictures`: of a report, of a bug's page and of a hunt, from real runs.

``make recordings`` takes them: it captures and minifies the program of the demo, hunts with Inductor in a few
operators, and opens the pages in a headless Chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fxminify.docs.gallery import minify

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

DOCS = Path(__file__).parent
FOLDER = DOCS / "pictures"
PROGRAM = DOCS / "demo" / "densenet.py"
#: Operators of which Inductor computes some gradients wrongly.
HUNT = ("hunt", "inductor", "--only", r"nn\.functional\.(avg|max)_pool|^a?cosh$|^logspace", "--grad", "--db", "hunt.db")
WIDTH = 1200
#: Pixels of a picture of each height.
HEIGHTS = {"report": 860, "bug": 860, "hunt": 620}


def chromium(playwright: Playwright) -> Browser:
    """The Chromium that is installed, or playwright's own. Raises playwright's `Error` where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    installed = next((found for name in names if (found := shutil.which(name))), None)
    return playwright.chromium.launch(executable_path=installed, args=["--no-sandbox"])


def take(folder: Path) -> None:
    """Write the pictures of what is in ``folder``: ``repro.db``, with a bug, and ``hunt.html``."""
    from playwright.sync_api import sync_playwright

    minify(folder, "report", "repro.db", "-o", "report.html", "--force")
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as driver, served(folder) as address:
        browser = chromium(driver)
        page = browser.new_page(viewport={"width": WIDTH, "height": 800})
        shoot(page, "report", f"{(folder / 'report.html').as_uri()}#1")
        shoot(page, "bug", f"{address}/bugs/1")
        shoot(page, "hunt", (folder / "hunt.html").as_uri())
        browser.close()


def shoot(page: Page, name: str, address: str) -> None:
    """Write the upper part of a page."""
    page.set_viewport_size({"width": WIDTH, "height": HEIGHTS[name]})
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.screenshot(path=FOLDER / f"{name}.png")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of ``repro.db``."""
    command = [sys.executable, "-m", "fxminify", "serve", "repro.db", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            found = next(m for line in server.stderr if (m := re.search(r"http://[\w.:]+", line)))
            yield found[0]
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/pictures.")
    parser.add_argument(
        "--folder", type=Path, help="a folder with repro.db and hunt.html of earlier runs: nothing is run"
    )
    asked = parser.parse_args()
    if asked.folder is not None:
        take(asked.folder.resolve())
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copy(PROGRAM, folder)
        minify(folder, "capture", PROGRAM.name)
        minify(folder, "run", "repro.db")
        minify(folder, *HUNT, "--report", "hunt.html")
        take(folder)


if __name__ == "__main__":
    main()
