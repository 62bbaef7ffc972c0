"""The code that a compiler makes of a minimal case, such as its intermediate representation, for reports.

The case runs once more in a worker while the adapter of the compiler collects illustrations
(`BackendAdapter.illustrations`). They do not influence the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ...backends.adapters import Illustration, adapters
from ...store.document.case import Case, Json
from ...store.index import Index
from ..oracle import tasks
from ..sandbox.pool import Ended, Workers

if TYPE_CHECKING:
    from ..sandbox.scratch import Scratch

#: The kind of the artifact in which the illustrations of a capture are kept.
ARTIFACT = "illustrations"
#: As many illustrations, and as many characters of one as text and as a picture, are kept.
MOST, MOST_TEXT, MOST_PICTURE = 4, 20_000, 200_000
_TASK = f"{__name__}:collect"


@dataclass(frozen=True, slots=True)
class Illustrations:
    """``items`` are in the order in which the compiler made them, ``heading`` says what they are. It is false
    without items."""

    heading: str = ""
    items: tuple[Illustration, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.items)

    def to_json(self) -> Json:
        return {"heading": self.heading, "items": [asdict(item) for item in self.items]}

    @classmethod
    def from_json(cls, doc: object) -> Illustrations:
        """Read the result of `to_json`, within the limits of `collect`, because the file may come from a stranger."""
        rows = doc.get("items") if isinstance(doc, dict) else None
        if not isinstance(doc, dict) or not isinstance(rows, list):
            return cls()
        items = tuple(_item(row) for row in rows[:MOST] if isinstance(row, dict))
        return cls(str(doc.get("heading", ""))[:100], items)


def find(pool: Workers, case: Case, entry: str, timeout: float) -> Illustrations:
    """The illustrations of ``case``, whose storages lie in the scratch directory; none where the worker dies."""
    for name, adapter in adapters().items():
        is_own = case.backend.get("name") in adapter.backends
        if adapter.illustration_module and (is_own or pool.has_imported(adapter.illustration_module)):
            asked = tasks.observe_argument(case, entry if entry in tasks.ENTRIES else "compile")
            reply = pool.submit(_TASK, {**asked, "adapter": name}, timeout=timeout).result()
            if reply.ended is Ended.DONE and (found := Illustrations.from_json(reply.result)):
                return found
    return Illustrations()


def collect(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: `Illustrations` as JSON."""
    adapter = adapters()[argument["adapter"]]
    with adapter.illustrations() as made:
        tasks.observe(argument, scratch, mark)
    items = []
    for item in made()[:MOST]:
        text = item.text if len(item.text) <= MOST_TEXT else f"{item.text[:MOST_TEXT]}...\n"
        picture = item.picture if len(item.picture) <= MOST_PICTURE else ""
        items.append(Illustration(item.name, text, picture, item.error))
    return Illustrations(adapter.illustration_heading, tuple(items)).to_json()


def keep(index: Index, capture: int, found: Illustrations) -> None:
    index.artifacts.save(capture, ARTIFACT, found.to_json())


def stored(index: Index, capture: int) -> Illustrations:
    """Return the illustrations that `keep` stored for ``capture``, as far as they can be read."""
    return Illustrations.from_json(index.artifacts.get(capture, ARTIFACT))


def _item(row: Json) -> Illustration:
    name, text, picture, error = (str(row.get(key, "")) for key in ("name", "text", "picture", "error"))
    return Illustration(
        name[:200], text[: MOST_TEXT + 10], picture if len(picture) <= MOST_PICTURE else "", error[:10_000]
    )
