"""Cases made from functions by Dynamo, as the capture hook makes them."""

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

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


def capture(
    function: Callable[..., object], inputs: Sequence[object], backend: BackendSpec, **more: Any
) -> tuple[Case, dict[str, bytes]]:
    """The case, and its storages, of the first graph that Dynamo makes of ``function``."""
    seen: list[tuple[Case, dict[str, bytes]]] = []

    def spy(gm: fx.GraphModule, examples: list[Any]) -> Any:
        if not seen:
            encoded = encode(gm, examples)
            seen.append((Case(encoded.graph, encoded.inputs, encoded.tensors), encoded.blobs))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=spy)(*inputs)
    case, blobs = seen[0]
    return replace(case, backend=backend.to_json(), torch=torch.__version__, **more), blobs
