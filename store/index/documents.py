"""JSON documents in the index: canonical text, compressed with zlib, and read with limits.

Canonical means sorted keys, no spaces, ASCII only: a document has one text and so one digest. A file may come from
anyone, so nothing is decompressed beyond its declared length, and that has a limit.
`fxminify.store.document.decode` checks the content of a document.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from typing import Any

from ..document.case import Case, Json, to_json
from ..document.decode import InvalidDocument, parse
from ..errors import ForeignValue

#: Largest case document, decompressed, in bytes. A graph of 100,000 nodes with stack traces has about 60 MB.
MAX_DOCUMENT = 128 << 20


def dumps(value: Any) -> str:
    """The canonical JSON of a value. Raises `ValueError` or `TypeError` if it is no JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def plain(value: Any) -> Any:
    """``value`` with text instead of all that is no JSON, for data that is only shown to people."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return repr(value)


def loads(text: str | bytes) -> Json:
    """The JSON object in ``text``. Raises `ForeignValue`."""
    try:
        return parse(text)
    except InvalidDocument as exc:
        raise ForeignValue(str(exc)) from exc


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pack(case: Case) -> tuple[str, int, bytes]:
    """Digest, size and compressed text of the document of ``case``. Raises `ValueError` if it is too large."""
    text = dumps(to_json(case)).encode()
    if len(text) > MAX_DOCUMENT:
        raise ValueError(f"the case has a document of {len(text):,} bytes, the limit is {MAX_DOCUMENT:,}")
    return digest(text), len(text), zlib.compress(text)


def unpack(key: str, size: int, data: bytes) -> Json:
    """Inverse of `pack`, as a document to validate. Raises `ForeignValue`."""
    if size > MAX_DOCUMENT:
        raise ForeignValue(f"a case document of {size:,} bytes, the limit is {MAX_DOCUMENT:,}")
    text = inflate(data, size)
    if digest(text) != key:
        raise ForeignValue("a case document that does not match its digest")
    return loads(text)


def inflate(data: bytes, size: int) -> bytes:
    """``data`` decompressed to exactly ``size`` bytes, without more memory than that. Raises `ForeignValue`."""
    stream = zlib.decompressobj()
    try:
        out = stream.decompress(data, size + 1)
    except (zlib.error, OverflowError, ValueError) as exc:
        raise ForeignValue(f"compressed data that cannot be read: {exc}") from exc
    if len(out) != size or not stream.eof or stream.unused_data:
        raise ForeignValue("compressed data that is not as long as declared")
    return out


def graph_hash(case: Case) -> str:
    """Digest of the graph and the form of its inputs, without values and without what is only for people."""
    doc = to_json(case)
    order = {key: place for place, key in enumerate(dict.fromkeys(t.get("storage") for t in doc["tensors"]))}
    tensors = [{**t, "storage": order[t.get("storage")]} for t in doc["tensors"]]  # who shares one, not what is in it
    form = {"graph": _without_meta(doc["graph"]), "inputs": doc["inputs"], "tensors": tensors}
    return digest(dumps(form).encode())


def _without_meta(graph: Json) -> Json:
    return {
        **graph,
        "nodes": [{k: v for k, v in node.items() if k != "meta"} for node in graph["nodes"]],
        "attrs": {
            path: {"graph": _without_meta(attr["graph"])} if "graph" in attr else attr
            for path, attr in graph["attrs"].items()
        },
    }
