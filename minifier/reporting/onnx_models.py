"""Which ONNX models do the ONNX Runtime backends make of a minimized case? The issue report shows them.

One more run of the case in a worker, watching the backend's storage; a model that ONNX Runtime refused is among them.
It is an illustration and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ...store.document.case import Case, Json
from ...store.index import Index
from ..oracle import tasks
from ..sandbox.pool import Ended, Workers

if TYPE_CHECKING:
    from ..sandbox.scratch import Scratch

#: Under this name the models are kept beside the scripts of a capture.
ARTIFACT = "onnx"
#: As many models, and as many characters of one as text and as a picture, are kept.
MOST_MODELS, MOST_TEXT, MOST_PICTURE = 4, 20_000, 200_000
#: What a worker has imported that made an ONNX model.
_COMPILER = "fxminify.backends.shipped.onnxrt.compiler"
_TASK = "fxminify.minifier.reporting.onnx_models:collect"


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """``name`` says of which pass it is; ``picture`` is SVG, empty for large models; ``error`` why it was refused."""

    name: str
    text: str
    picture: str = ""
    error: str = ""


def find(pool: Workers, case: Case, entry: str, timeout: float) -> list[OnnxModel]:
    """The models of ``case``, whose storages lie in the scratch directory; none where it dies or there are none."""
    if not pool.has_imported(_COMPILER):
        return []
    asked = tasks.observation(case, entry if entry in tasks.ENTRIES else "compile")
    reply = pool.submit(_TASK, asked, timeout=timeout).result()
    return _read(reply.result["models"]) if reply.ended is Ended.DONE else []


def collect(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: the models, as JSON."""
    from ...backends.shipped.onnxrt.storage import watching

    with watching() as seen:
        tasks.observe(argument, scratch, mark)
    found = []
    for stored in seen[:MOST_MODELS]:
        text = stored.text()
        picture = stored.svg() if len(stored.onnx.graph.node) <= 1000 else ""
        cut = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}...\n"
        name = f"{stored.report.kind} {stored.name}"
        found.append(asdict(OnnxModel(name, cut, picture if len(picture) <= MOST_PICTURE else "", stored.error)))
    return {"models": found}


def keep(index: Index, capture: int, models: list[OnnxModel]) -> None:
    index.artifacts.save(capture, ARTIFACT, [asdict(model) for model in models])


def stored(index: Index, capture: int) -> list[OnnxModel]:
    """What `keep` kept for ``capture``, as far as it can be read."""
    return _read(index.artifacts.get(capture, ARTIFACT))


def _read(found: object) -> list[OnnxModel]:
    rows = found if isinstance(found, list) else []
    return [_model(row) for row in rows[:MOST_MODELS] if isinstance(row, dict)]


def _model(row: Json) -> OnnxModel:
    """Within the limits of `collect`, whoever wrote the file."""
    name, text, picture, error = (str(row.get(key, "")) for key in ("name", "text", "picture", "error"))
    return OnnxModel(
        name[:200], text[: MOST_TEXT + 10], picture if len(picture) <= MOST_PICTURE else "", error[:10_000]
    )
