"""Pages in a browser: the types of fixtures that open them, and how well their texts can be read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from playwright.sync_api import Page


class OpenPage(Protocol):
    """``open_page(db, ids, **options of the browser's context)``: the report in a page."""

    def __call__(self, db: Path, *ids: int, fragment: str = "", **options: Any) -> Page: ...


class Browse(Protocol):
    """``browse(address, **options of the browser's context)``: the page at an address of a server."""

    def __call__(self, address: str, **options: Any) -> Page: ...


#: WCAG 2.1 asks for this contrast between text and what it stands on.
CONTRAST = 4.5
MEASURE = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c;
  } return [255, 255, 255]; };
  const worst = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg') || !e.checkVisibility()) continue;
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    worst.push([(a + 0.05) / (b + 0.05), e.tagName + '.' + e.className + ' ' + e.textContent.trim().slice(0, 30)]);
  }
  for (const g of document.querySelectorAll('.graph g[data-n]')) {
    const [a, b] = [light(rgb(getComputedStyle(g.querySelector('text')).fill)),
      light(rgb(getComputedStyle(g.querySelector('rect')).fill))].sort((x, y) => y - x);
    worst.push([(a + 0.05) / (b + 0.05), 'box ' + g.getAttribute('class')]);
  }
  return worst.sort((x, y) => x[0] - y[0])[0];
}"""
