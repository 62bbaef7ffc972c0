"""Generators of candidates from which canonicalization passes are built."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...store.document.case import Case, Graph, TensorSpec, Value
from ..candidate.graph_view import Storages
from .searches import dense

#: Yields candidates, is sent whether each still fails in the same way, and returns the plainest case.
Candidates = Generator[Case, bool, Case]
#: Makes a case plainer in one respect, or returns the same case.
Edit = Callable[[Case], Case]
#: A canonicalization pass: it takes the case and the storages of its tensors.
Canonicalize = Callable[[Case, Storages], Candidates]


def together(case: Case, edits: Sequence[Edit]) -> Candidates:
    """``case`` with all ``edits`` that leave the failure as it is: all at once, otherwise by a sweep over them."""
    edits = [edit for edit in edits if edit(case) != case]
    search = dense(len(edits))
    refused: list[Case] = []
    best = case
    try:
        kept = next(search)
        while True:
            candidate = case
            for i, edit in enumerate(edits):
                candidate = candidate if i in kept else edit(candidate)
            same = candidate == best or (candidate not in refused and (yield candidate))
            if same:
                best = candidate
            else:
                refused.append(candidate)
            kept = search.send(same)
    except StopIteration:
        return best


def first_of(case: Case, candidates: Sequence[Case]) -> Candidates:
    """The first of ``candidates`` that fails in the same way, else ``case``."""
    asked = [case]
    for candidate in candidates:
        if candidate not in asked:
            asked.append(candidate)
            if (yield candidate):
                return candidate
    return case


def with_tensor(case: Case, index: int, spec: TensorSpec) -> Case:
    """``case`` with one tensor replaced."""
    return replace(case, tensors=(*case.tensors[:index], spec, *case.tensors[index + 1 :]))


def given_before(case: Case) -> set[int]:
    """Indices of the tensors that earlier calls take."""
    return {index for call in case.earlier for index in _tensors(list(call.values()))}


def data_tensors(case: Case) -> list[int]:
    """Indices of the plain tensors among inputs and attributes, in the order of their first use.

    Tensors that consist of parts, those parts, and the states of random generators are not among them.
    """
    found = _tensors([list(case.inputs), [dict(call) for call in case.earlier], case.graph])
    parts = {part for spec in case.tensors for part in spec.parts}
    return [i for i in dict.fromkeys(found) if i not in parts and _is_plain(case.tensors[i])]


def own_key(data: bytes, of: object) -> str:
    """A key for a new storage with ``data``. ``of`` keeps equal storages of two tensors apart."""
    return f"{of}#{hashlib.sha256(data).hexdigest()[:32]}"


def _is_plain(spec: TensorSpec) -> bool:
    return spec.layout == "strided" and not spec.parts and not spec.extra and not spec.device.startswith("meta")


def _tensors(value: Value | Graph) -> Iterator[int]:
    """Indices of the tensors in a value, an attribute or a graph."""
    if isinstance(value, Graph):
        for node in value.nodes:
            yield from _tensors([*node.args, *node.kwargs.values()])
        yield from _tensors(list(value.attrs.values()))
    elif type(value) is list or type(value) is tuple:
        for item in value:
            yield from _tensors(item)
    elif type(value) is dict and "generator" not in value:
        yield from _in_dict(value)


def _in_dict(value: dict[str, Any]) -> Iterator[int]:
    for key, item in value.items():
        if key == "tensor" and type(item) is int:
            yield item
        elif key in ("parameters", "buffers") and type(item) is dict:
            yield from (index for index in item.values() if index is not None)
        else:
            yield from _tensors(item)
