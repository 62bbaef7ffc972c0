"""The ``options={...}`` of `torch.compile` for this backend, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any

from ..options_reader import InvalidOption, choose
from .storage import Storage

NAME = "fxminify_ort"
PACKAGES = ("onnx", "onnx_ir", "onnxscript", "onnxruntime")


class MissingPackage(ImportError):
    """An optional package is not installed; the message has the command for pip."""


def missing() -> list[str]:
    """Names of the packages that are not installed, as pip spells them."""
    return [name.replace("_", "-") for name in PACKAGES if find_spec(name) is None]


def require() -> None:
    """Raise `MissingPackage` unless everything is installed."""
    if names := missing():
        raise MissingPackage(
            f"the backend {NAME} needs {', '.join(names)}: pip install 'fxminify[onnxrt]' "
            f"(or: pip install {' '.join(names)})"
        )


#: torchlib's functions are written for this opset. For other opsets the finished model is converted.
TORCHLIB_OPSET = 18
NEWEST_OPSET = 24


@dataclass(frozen=True, slots=True)
class OnnxrtOptions:
    """Options of the backend, with their defaults.

    ``target_opset``: opset of the ONNX models, 18 to 24. ``providers``: execution providers, names or ``(name, {option:
    value})``; empty means CUDA where a graph has CUDA tensors, then CPU. ``session_options``: an
    ``onnxruntime.SessionOptions``, or a dict of its attributes and, where a key has a dot, of its configuration
    entries. ``strict``: raise where a node would have to stay in PyTorch. ``freeze``: for inference, parameters and
    buffers become constants of the model, which ignores later changes of them. ``dump_dir``: folder in which every
    model is saved, beside the graph it came from. ``storage``: a `Storage`, list or dict that receives every model.
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
            choose(name, known, "option", NAME)
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
        if not isinstance(table, Mapping):
            choose(str(table), ("default", "core", "none"), "decomposition table", NAME)
        return cls(**values)


def _providers(given: Any) -> tuple[Any, ...]:
    entries = (given,) if isinstance(given, str) else tuple(given)
    for entry in entries:
        pair = isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[1], Mapping)
        if not isinstance(entry[0] if pair else entry, str):
            raise InvalidOption(f"a provider is a name or (name, {{option: value}}), not {entry!r}")
    return tuple((e[0], dict(e[1])) if not isinstance(e, str) else e for e in entries)
