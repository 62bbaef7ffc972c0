"""The form in which a capture is sent: a safetensors file with its document and its storages.

The entry ``document`` is JSON. Every other entry is a storage, named by the sha256 of its bytes. An upload may come
from anyone: `read` runs nothing, believes no size, and raises `InvalidUpload` with one sentence for whatever fxminify
would not write. Numbers of items are limited (`fxminify.store.document.decode`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from .. import codec
from ..document import storages
from ..document.case import Blobs, Json, to_json
from ..document.decode import DEFAULT, InvalidDocument, check_storage, parse, validate
from ..document.names import UnknownName
from ..document.storages import Joined, Piece
from ..failure import Failure
from ..index.documents import digest, dumps, plain
from ..recording import Recording

#: Largest document of an upload, in bytes.
MAX_DOCUMENT = 64 << 20
#: The form of uploads that this fxminify writes and reads.
FORMAT = 1
_DOCUMENT = "document"
#: In the provenance of a capture, the versions that a sighting is counted under.
_VERSIONS = ("torch", "python")
_FIELDS = {"format", "case", "failure", "provenance", "graph_text", "reason", "origin", "maker"}
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_MAKER = re.compile(r"([0-9a-f]{16})?\Z")
#: The most levels of what is no case, which has limits of its own.
_DEPTH = 16


class InvalidUpload(ValueError):
    """It is nothing that fxminify sends. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A capture that is sent. ``origin`` proves to its ``maker`` that it is theirs (`fxminify.store.index.trust`)."""

    met: Recording
    origin: str = ""
    maker: str = ""

    def with_origin(self) -> Recording:
        """The capture; its provenance has what workers of its maker look for."""
        known = {"origin": self.origin, "maker": self.maker} if self.origin and self.maker else {}
        return replace(self.met, provenance={**self.met.provenance, **known})


def write(upload: Upload, path: Path) -> None:
    """Write ``upload`` to a new file."""
    met = upload.met
    document = {
        "format": FORMAT,
        "case": None if met.case is None else to_json(met.case),
        "failure": plain(codec.dump(met.failure)),
        "provenance": plain(met.provenance),
        "graph_text": met.graph_text,
        "reason": met.reason,
        "origin": upload.origin,
        "maker": upload.maker,
    }
    entries: Blobs = Joined({_DOCUMENT: dumps(document).encode()}, met.blobs)
    names = [_DOCUMENT, *(() if met.case is None else sorted(met.case.storages))]
    about = {name: str(met.provenance[name]) for name in _VERSIONS if met.provenance.get(name)}
    storages.write(path, _safetensors(names, entries, about))


def _safetensors(names: Sequence[str], entries: Blobs, about: Mapping[str, str]) -> Iterator[Piece]:
    """A file of the entries with these names, piece by piece, which the library does not write.

    The format is https://huggingface.co/docs/safetensors/index#format.
    """
    header, end = Json({"__metadata__": dict(about)}), 0
    for name in names:
        begin, end = end, end + storages.size(entries, name)
        header[name] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in names:
        yield from storages.pieces(entries, name)


def versions(path: Path) -> dict[str, str]:
    """Return the versions with which the failure in one of our files occurred. Empty if they cannot be read."""
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError):
        return {}


def read(path: Path) -> Upload:
    """The upload in a file, which must stay there: storages are read when they are asked for.

    Raises `InvalidUpload`.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            sizes = _sizes(file)
            if sizes.pop(_DOCUMENT, MAX_DOCUMENT + 1) > MAX_DOCUMENT:
                raise InvalidUpload(f"the upload has no document of at most {MAX_DOCUMENT:,} bytes")
            document = parse(file.get_tensor(_DOCUMENT).tobytes())
        return _upload(document, UploadedBlobs(path, sizes))
    except (SafetensorError, InvalidDocument, UnknownName) as exc:
        raise InvalidUpload(f"the upload cannot be read: {_line(exc)}") from exc


class UploadedBlobs(Mapping[str, bytes]):
    """The storages in a file, each read when it is asked for."""

    def __init__(self, path: Path, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self._path = path

    def __getitem__(self, key: str) -> bytes:
        if key not in self.sizes:
            raise KeyError(key)
        with safe_open(self._path, framework="numpy") as file:
            found: bytes = file.get_tensor(key).tobytes()
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)


def _sizes(file: Any) -> dict[str, int]:
    """The number of bytes of each entry."""
    names = list(file.keys())
    if len(names) > DEFAULT.tensors:
        raise InvalidUpload(f"the upload has {len(names):,} entries, the limit is {DEFAULT.tensors:,}")
    found = {}
    for name in names:
        entry = file.get_slice(name)
        shape = entry.get_shape()
        if (name != _DOCUMENT and not _DIGEST.match(name)) or entry.get_dtype() != "U8" or len(shape) != 1:
            raise InvalidUpload("the upload has an entry that is neither a document nor a storage")
        found[name] = int(shape[0])
    return found


def _upload(document: Json, blobs: UploadedBlobs) -> Upload:
    if document.get("format") != FORMAT or set(document) != _FIELDS:
        raise InvalidUpload(f"the upload has another form than version {FORMAT}: use the fxminify of the server")
    for name in ("graph_text", "reason", "origin", "maker"):
        if not isinstance(document[name], str):
            raise InvalidUpload(f"the upload has no text as its {name}")
    provenance = document["provenance"]
    if not isinstance(provenance, dict):
        raise InvalidUpload("the upload does not say where it comes from")
    for part in (provenance, document["failure"]):
        _check_depth(part)
    try:
        failure = codec.load(document["failure"], Failure)
    except ValueError as exc:
        raise InvalidUpload(f"the upload has no failure that can be read: {_line(exc)}") from exc
    nodes = failure.detail.get("nodes", {})
    if not isinstance(nodes, dict) or not all(isinstance(name, str) for name in nodes.values()):
        raise InvalidUpload("the upload names nodes that are no text")
    case = None if document["case"] is None else validate(document["case"])
    needed = set() if case is None else set(case.storages)
    if needed != set(blobs):
        raise InvalidUpload("the upload has other storages than those that its case needs")
    for spec in () if case is None else case.tensors:
        if spec.storage is not None:
            check_storage(spec, blobs.sizes[spec.storage])
    if wrong := next((key for key, data in blobs.items() if digest(data) != key), None):
        raise InvalidUpload(f"storage {wrong[:12]} is not named by the sha256 of its bytes")
    if case is None and not document["reason"]:
        raise InvalidUpload("the upload has neither a case nor a reason")
    provenance = {key: value for key, value in provenance.items() if key not in ("origin", "maker")}
    met = Recording(
        case=case, blobs=blobs, failure=failure, provenance=provenance, graph_text=document["graph_text"],
        reason=document["reason"],
    )  # fmt: skip
    maker = document["maker"] if _MAKER.match(document["maker"]) else ""
    return Upload(met, document["origin"][:200], maker)


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > _DEPTH:
        raise InvalidUpload(f"the upload is nested more than {_DEPTH} times")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(item, depth + 1)


def _line(exc: BaseException) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]
