"""The key of a candidate, made from its content. Candidates with one key get one answer.

Storages are identified by name and not by their bytes, so a key costs microseconds and is the same in every run of one
reduction. Fields for display only (`Node.meta`) are left out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from operator import attrgetter
from typing import Any

from ...store.document.case import Case, Graph, Node, TensorSpec


class Keys:
    """Makes keys. Candidates share most of their nodes, so the text of each node is cached.

    The text is the ``repr``, which is five times as fast as JSON. All else is small and written as sorted JSON.
    """

    def __init__(self) -> None:
        self._texts: dict[int, tuple[object, bytes]] = {}
        self._last: tuple[Case, str] | None = None

    def key(self, case: Case) -> str:
        """The key of ``case``. The last key is cached."""
        if self._last is None or self._last[0] is not case:
            self._last = case, self._made(case)
        return self._last[1]

    def _made(self, case: Case) -> str:
        known, parts = self._texts, []
        items: tuple[Node | TensorSpec, ...] = (*case.graph.nodes, *case.tensors)
        for item in items:
            found = known.get(id(item))
            parts.append(found[1] if found is not None and found[0] is item else self._text(item))
        digest = hashlib.sha256(b"".join(parts))
        digest.update(_dump([case.inputs, case.graph.training, case.backward, case.compare]))
        if case.calls != 1:
            digest.update(b"%d" % case.calls)
        if case.earlier:
            digest.update(_dump(case.earlier))
        if case.tolerance:
            digest.update(_dump(dict(case.tolerance)))
        if case.strict:
            digest.update(b"strict")
        for part in (case.graph.attrs, case.context, case.backend, case.imports):
            if part:
                digest.update(_dump(part))
            digest.update(b"\x1e")
        return digest.hexdigest()[:32]

    def _text(self, item: Node | TensorSpec) -> bytes:
        if len(self._texts) > 100_000:
            self._texts.clear()
        text = _text(item).encode() + b"\x1e"
        self._texts[id(item)] = (item, text)
        return text


def _text(item: Node | TensorSpec) -> str:
    if isinstance(item, Node):
        kwargs = sorted(item.kwargs.items()) if item.kwargs else ()
        return repr((item.name, item.op, item.target, item.args, kwargs))
    loose = [item.init, item.extra] if item.init or item.extra else ()
    return repr((*_fixed(item), loose and _dump(loose)))


def _dump(value: Any) -> bytes:
    return _ENCODER.encode(value).encode() + b"\x1e"


def _plain(item: Any) -> Any:
    if isinstance(item, Node):
        return [item.name, item.op, item.target, item.args, dict(item.kwargs)]
    if isinstance(item, Graph):
        return [item.nodes, dict(item.attrs), item.training]
    if isinstance(item, TensorSpec):
        return [getattr(item, name) for name in _FIELDS]
    raise TypeError(f"{type(item).__name__} has no place in a case")


_FIELDS = tuple(f.name for f in fields(TensorSpec))
#: All of a tensor but its dictionaries.
_fixed = attrgetter(*(name for name in _FIELDS if name not in ("init", "extra")))
_ENCODER = json.JSONEncoder(default=_plain, sort_keys=True, separators=(",", ":"))
