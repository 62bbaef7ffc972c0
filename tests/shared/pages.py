"""The type of the fixture ``open_page``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from playwright.sync_api import Page


class OpenPage(Protocol):
    """``open_page(db, ids, **options of the browser's context)``: the report in a page."""

    def __call__(self, db: Path, *ids: int, fragment: str = "", **options: Any) -> Page: ...
