"""The ``options={...}`` of `torch.compile` for this backend, checked before anything runs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any

from ..options_reader import InvalidOption
from .storage import Storage

PACKAGES = ("onnx", "onnx_ir", "onnxscript", "onnxruntime")


class MissingPackage(ImportError):
    """An optional package is not installed; the message has the pip line."""


def missing() -> list[str]:
    """Names of the packages that are not installed, as pip spells them."""
    return [name.replace("_", "-") for name in PACKAGES if find_spec(name) is None]


def require() -> None:
    """Raise `MissingPackage` unless everything is installed."""
    if names := missing():
        raise MissingPackage(
            f"the backend fxminify_ort needs {', '.join(names)}: pip install 'fxminify[onnxrt]' "
            f"(or: pip install {' '.join(names)})"
        )


#: torchlib's functions are written for this opset; other opsets are reached by converting the finished model.
TORCHLIB_OPSET = 18
NEWEST_OPSET = 24


@dataclass(frozen=True, slots=True)
class OnnxrtOptions:
    """Options of the backend, with their defaults.

    ``target_opset``: opset of the ONNX models, 18 to 24. ``providers``: execution providers, names or
    ``(name, {option: value})``; empty means CUDA where a graph has CUDA tensors, then CPU. ``session_options``: an
    ``onnxruntime.SessionOptions``, or a dict of its attributes and, where a key has a dot, of its configuration
    entries. ``strict``: raise where a node would have to stay in PyTorch. ``freeze``: for inference, parameters and
    buffers become constants of the model, later changes to them go unseen. ``dump_dir``: folder in which every model
    is saved, beside the graph it came from. ``storage``: a `Storage`, list or dict that receives every model.
    ``optimize``: run ``onnxscript.optimizer`` before ONNX Runtime's own optimizer. ``decompositions``: "default",
    "core" (all of core ATen's), "none", or a dict of further decompositions.
    """

    target_opset: int = TORCHLIB_OPSET
    providers: tuple[Any, ...] = ()
    session_options: Any = None
    strict: bool = False
    freeze: bool = False
    dump_dir: str | None = None
    storage: Storage | MutableSequence[Any] | MutableMapping[str, Any] | None = None
    optimize: bool = False
    decompositions: str | Mapping[Any, Callable[..., Any]] = "default"

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> OnnxrtOptions:
        """The options of a call of `torch.compile`. Raises `InvalidOption`."""
        values = dict(given or {})
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise InvalidOption(unknown("option", name, known))
        for name in ("strict", "freeze", "optimize"):
            if type(values.get(name, False)) is not bool:
                raise InvalidOption(f"option {name!r} is True or False, not {values[name]!r}")
        if "providers" in values:
            values["providers"] = _providers(values["providers"])
        opset = values.get("target_opset", TORCHLIB_OPSET)
        if type(opset) is not int or not TORCHLIB_OPSET <= opset <= NEWEST_OPSET:
            raise InvalidOption(f"option 'target_opset' is {TORCHLIB_OPSET} to {NEWEST_OPSET}, not {opset!r}")
        storage = values.get("storage")
        if not isinstance(storage, Storage | MutableSequence | MutableMapping | None):
            raise InvalidOption(f"option 'storage' is a Storage, a list or a dict, not {type(storage).__name__}")
        table = values.get("decompositions", "default")
        names = ["default", "core", "none"]
        if not isinstance(table, Mapping) and table not in names:
            raise InvalidOption(unknown("set of decompositions", str(table), names))
        return cls(**values)


def _providers(given: Any) -> tuple[Any, ...]:
    entries = (given,) if isinstance(given, str) else tuple(given)
    for entry in entries:
        pair = isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[1], Mapping)
        if not isinstance(entry[0] if pair else entry, str):
            raise InvalidOption(f"a provider is a name or (name, {{option: value}}), not {entry!r}")
    return tuple((e[0], dict(e[1])) if not isinstance(e, str) else e for e in entries)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that is not known: with the nearest one, or all of them where none is near."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"unknown {kind} {name!r}: {hint}"
