"""Content addresses: the sha256 of its bytes names each storage of a finished case, as in the index.

During a reduction the key of a traced value is ``<node>@<version>``, so that a candidate has the same keys in every run
(`fxminify.minifier.candidate.trace`).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from ...store.document.case import Blobs, Case

#: Zero bytes at the end distinguish a storage from another one with equal content.
_PADDING = 64


def content_addressed(case: Case, blobs: Blobs) -> tuple[Case, dict[str, bytes]]:
    """``case`` with every storage named by the sha256 of its bytes, and those bytes. Unused storages are left out.

    Two storages with equal bytes stay two storages, see ``docs/format.md``.
    """
    names: dict[str, str] = {}
    addressed: dict[str, bytes] = {}
    for key in sorted(case.storages):
        data = bytes(blobs[key])
        while (name := hashlib.sha256(data).hexdigest()) in addressed:
            data += bytes(_PADDING)  # with one key the two storages would become one
        names[key] = name
        addressed[name] = data
    tensors = tuple(t if t.storage is None else replace(t, storage=names[t.storage]) for t in case.tensors)
    return replace(case, tensors=tensors), addressed
