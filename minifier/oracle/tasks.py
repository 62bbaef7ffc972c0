"""The tasks of a worker: observe a case, record its values. Both sides of each request are here.

A case is sent as the document of `fxminify.store.document.case.to_json` and is not validated again: the driver has done
that. Its storages are in the scratch directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...store import codec
from ...store.document.case import Case, Json, TensorSpec, to_json
from ..candidate.trace import graph_from_json
from ..candidate.validity import Way

if TYPE_CHECKING:
    from ..sandbox.scratch import Scratch

#: Ways to ask a backend; see `fxminify.minifier.oracle.observe`.
ENTRIES = ("direct", "compile")


#: As many threads of torch as a process of its own has, where a script runs.
OWN_THREADS = 0


def observe_argument(case: Case, entry: str, threads: int = OWN_THREADS, *, summed: bool = False) -> Json:
    """Build the argument of the ``observe`` task.

    ``threads`` is torch's number of threads if the context does not set one. Some compilers generate other code for
    another number of threads, so by default a worker has as many as a script. ``summed``: gradients are gradients of
    the sum of the outputs.
    """
    return {"case": to_json(case), "entry": entry, "threads": threads, "summed": summed}


def record_argument(case: Case) -> Json:
    """The argument of the ``record`` task."""
    return {"case": to_json(case)}


def study_argument(case: Case, prefix: str) -> Json:
    """The argument of the ``study`` task. Storages get keys that begin with ``prefix``."""
    return {"case": to_json(case), "prefix": prefix}


def way_argument(base: Case) -> Json:
    """The argument of the ``way`` task."""
    return {"base": to_json(base)}


def validity_argument(way: Way, candidates: Sequence[Case]) -> Json:
    """The argument of the ``validity`` task."""
    return {"way": way, "candidates": [to_json(case) for case in candidates]}


def rules_argument(cases: Sequence[Case]) -> Json:
    """The argument of the ``rules`` task."""
    return {"cases": [to_json(case) for case in cases]}


def observe(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: an `Observation` as JSON."""
    import torch

    from ...backends.running.execution import of_the_sum
    from ..sandbox import prepare
    from .observe import observe

    before, threads = torch.get_num_threads(), argument["threads"] or prepare.own_threads()
    if threads != before:
        torch.set_num_threads(threads)
    try:
        with of_the_sum() if argument["summed"] else nullcontext():
            return codec.dump(observe(case_from_json(argument["case"]), scratch, argument["entry"], mark))
    finally:
        if threads != before:
            torch.set_num_threads(before)


def observe_limited(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: an `Observation` as JSON, and the ``applications`` of a subsystem of torch in their order.

    The argument is the argument of ``observe`` with ``subsystem`` and ``most``, the most applications that are done.
    """
    from ...backends.adapters import adapter_of

    adapter = adapter_of(argument["case"]["backend"]["name"])
    with adapter.limited(argument["subsystem"], argument["most"]) as applied:
        found = observe(argument, scratch, mark)
    return {"observation": found, "applications": applied}


def judge(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: the `JudgedResult`s of the results of a case. The argument is the one of ``observe``."""
    from .observe import judge

    found = judge(case_from_json(argument["case"]), scratch, argument["entry"], mark)
    return {"judgements": [codec.dump(each) for each in found]}


def record(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: a `Trace` as JSON; what was recorded is in the scratch directory."""
    from ..tracing.recorder import record

    mark("eager")
    return record(case_from_json(argument["case"]), scratch, put=scratch.write).to_json()


def study(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: the values of a case that is not the captured one any more, and what its nodes consist of."""
    from ..tracing.study import study

    mark("eager")
    case = case_from_json(argument["case"])
    return study(case, scratch, put=scratch.write, prefix=argument["prefix"]).to_json()


def way(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: how to tell which candidates torch accepts."""
    from ..tracing.validity import way

    mark("eager")
    return {"way": way(case_from_json(argument["base"]))}


def validity(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: which candidates torch accepts."""
    from ..tracing.validity import validity

    mark("eager")
    return {"valid": validity(Way(argument["way"]), list(map(case_from_json, argument["candidates"])))}


def rules(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: which cases with subgraphs obey torch's own rules."""
    from ..tracing.rules import obeyed

    mark("eager")
    return {"obeyed": obeyed(list(map(case_from_json, argument["cases"])))}


def fakes(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: the operator of a case whose fake kernel is wrong, if there is one."""
    from ..tracing.fake_kernels import wrong

    mark("eager")
    return {"wrong": wrong(case_from_json(argument["case"]), scratch)}


def describe(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: an `Installed` as JSON. ``argument`` names the ``modules`` of the backend and of the operators, and
    the ``files`` in which the failure arose."""
    from ...backends.provenance.installed import describe

    return codec.dump(describe(argument["modules"], argument["files"]))


def load(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """In a worker: load the backend of the `BackendSpec` ``argument``. Raises `CannotLoad`."""
    from ...backends.provenance.spec import BackendSpec

    BackendSpec.from_json(argument).load()
    return {}


def case_from_json(doc: Json) -> Case:
    """Inverse of `to_json`, without checks."""
    return Case(
        graph=graph_from_json(doc["graph"]),
        inputs=tuple(doc["inputs"]),
        tensors=tuple(_tensor(t) for t in doc["tensors"]),
        context=doc["context"],
        backend=doc["backend"],
        imports=tuple(doc["imports"]),
        backward=doc["backward"],
        compare=doc["compare"],
        torch=doc["torch"],
        calls=doc.get("calls", 1),
        earlier=tuple(doc.get("earlier", ())),
        tolerance=doc.get("tolerance", {}),
        strict=doc.get("strict", False),
    )


def _tensor(doc: Json) -> TensorSpec:
    tuples: dict[str, Any] = {name: tuple(doc[name]) for name in ("shape", "stride", "parts", "dynamic") if name in doc}
    return TensorSpec(**{**doc, **tuples})
