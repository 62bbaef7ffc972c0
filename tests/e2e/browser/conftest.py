"""A headless Chromium for our pages: playwright's own, or the one that is installed. Without one, tests skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pages import Browse, OpenPage

from fxminify.docs.pictures import chromium
from fxminify.minifier.reporting.overview import overview
from fxminify.repro_templates.report.html import render
from fxminify.store.index import Index

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        try:
            browser = chromium(driver)
        except playwright.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[OpenPage]:
    """Any complaint of the page fails the test, and so does whatever it asks the network for."""
    complaints: list[str] = []
    contexts = []

    def open_(db: Path, *ids: int, fragment: str = "", **options: Any) -> Page:
        path = tmp_path / "report.html"
        with Index.open(str(db), readonly=True) as index:
            path.write_text(render(overview(index, ids)))
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: complaints.append(request.url) if "report.html" not in request.url else None)
        page.goto(f"{path.as_uri()}{fragment}")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def browse(browser: Browser) -> Iterator[Browse]:
    """Any complaint of the page fails the test, and so does whatever it asks of another server."""
    complaints: list[str] = []
    contexts = []

    def open_(address: str, **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        site = "/".join(address.split("/")[:3]) + "/"
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: None if request.url.startswith(site) else complaints.append(request.url))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
