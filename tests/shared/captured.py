"""Cases made from functions by Dynamo, as the capture hook makes them."""

import pathlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from faulty_backends import scripted
from torch import fx

import fxminify
from fxminify.backends.provenance.spec import BackendSpec
from fxminify.store.document.case import Case
from fxminify.store.live.encode import encode

HERE = str(pathlib.Path(__file__).parent)
FAILURES = str(pathlib.Path(__file__).parents[1] / "failures")


def spec(name: str, module: str = "faulty_backends", **more: Any) -> BackendSpec:
    """A backend of ``faulty_backends``, or with an empty module one of torch's own."""
    return BackendSpec(
        name=name, how="registered", target=name, module=module, search_path=(HERE, FAILURES) if module else (), **more
    )


@contextmanager
def pending(folder: pathlib.Path, elements: int) -> Iterator[pathlib.Path]:
    """An index in ``folder`` with one pending failure, whose input has so many ``elements``: the backend `scripted`
    cannot read the graph module that Dynamo makes. The state directory is there, too, inside of this context."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(folder / "state"))
        path = folder / "repro.db"
        torch._dynamo.reset()
        fxminify.install(path, check=False, data="full")
        try:
            with pytest.raises(Exception, match="cannot be used as a value"):
                torch.compile(lambda x: torch.sin(x) + x, backend=scripted)(torch.randn(elements))
        finally:
            fxminify.uninstall()
        yield path


def capture(
    function: Callable[..., object], inputs: Sequence[object], backend: BackendSpec, **more: Any
) -> tuple[Case, dict[str, bytes]]:
    """The case, and its storages, of the first graph that Dynamo makes of ``function``."""
    seen: list[tuple[Case, dict[str, bytes]]] = []

    def spy(gm: fx.GraphModule, examples: list[Any]) -> Any:
        if not seen:
            encoded = encode(gm, examples)
            seen.append((Case(encoded.graph, encoded.inputs, encoded.tensors), dict(encoded.blobs)))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=spy)(*inputs)
    case, blobs = seen[0]
    return replace(case, backend=backend.to_json(), torch=torch.__version__, **more), blobs
