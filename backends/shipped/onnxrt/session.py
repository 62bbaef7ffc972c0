"""Sessions: an ONNX model as an ``onnxruntime.InferenceSession``, made once for equal models.

The key of the cache is the sha256 of the model without its metadata, which is equal for the equal layers of a model and
for a graph that Dynamo compiles again. The cache holds sessions weakly. A model past protobuf's limit of 2 GB goes
through a file whose tensors lie beside it.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import onnx
import onnx_ir as ir
import onnxruntime  # type: ignore[import-untyped]
import torch

from ..options_reader import InvalidOption
from .options import OnnxrtOptions, unknown

#: Bytes of initializers from which a model is given as a file with external data.
EXTERNAL_DATA_BYTES = 2**31 - 2**26
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"

_sessions: WeakValueDictionary[str, onnxruntime.InferenceSession] = WeakValueDictionary()


def providers(options: OnnxrtOptions, tensors: Iterable[Any]) -> tuple[Any, ...]:
    """The execution providers for a graph with these values. Raises `InvalidOption` for one that is not there."""
    cuda = any(isinstance(t, torch.Tensor) and t.device.type == "cuda" for t in tensors)
    chosen = options.providers or ((CUDA, CPU) if cuda else (CPU,))
    available = onnxruntime.get_available_providers()
    for entry in chosen:
        name = entry if isinstance(entry, str) else entry[0]
        if name not in available:
            raise InvalidOption(unknown("execution provider of this onnxruntime", name, available))
    return chosen


def session_options(given: Any) -> onnxruntime.SessionOptions:
    """What the option ``session_options`` means. Raises `InvalidOption`."""
    if isinstance(given, onnxruntime.SessionOptions):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise InvalidOption(f"option 'session_options' is a SessionOptions or a dict, not {type(given).__name__}")
    out = onnxruntime.SessionOptions()
    out.log_severity_level = 4  # what goes wrong comes as an exception
    known = [name for name in dir(out) if not name.startswith("_") and not callable(getattr(out, name))]
    for name, value in (given or {}).items():
        if "." in name:
            out.add_session_config_entry(name, str(value))
        elif name in known:
            kind = type(getattr(out, name))
            setattr(out, name, getattr(kind, value) if isinstance(value, str) and hasattr(kind, value) else value)
        else:
            raise InvalidOption(unknown("session option", name, known))
    return out


def make(model: ir.Model, options: OnnxrtOptions, chosen: tuple[Any, ...]) -> tuple[onnxruntime.InferenceSession, Any]:
    """A session for ``model`` and its ``onnx.ModelProto``; beyond 2 GB the latter refers to files that are gone."""
    settings = session_options(options.session_options)
    made, _ = proto(model)
    if made is None:
        return _external(model, settings, chosen)
    data = made.SerializeToString()
    key = hashlib.sha256(data + repr((chosen, _described(options.session_options))).encode()).hexdigest()
    session = _sessions.get(key)
    if session is None:
        session = onnxruntime.InferenceSession(data, settings, providers=list(chosen))
        _sessions[key] = session
    return session, made


def proto(model: ir.Model) -> tuple[Any, int]:
    """The model as an ``onnx.ModelProto``, None past protobuf's limit, and its bytes of initializers."""
    strip(model)
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    return (ir.to_proto(model) if size < EXTERNAL_DATA_BYTES else None), size


def _external(model: ir.Model, settings: Any, chosen: tuple[Any, ...]) -> tuple[onnxruntime.InferenceSession, Any]:
    with tempfile.TemporaryDirectory(prefix="fxminify-onnx-") as folder:
        path = Path(folder) / "model.onnx"
        ir.save(model, path, external_data="model.data")
        session = onnxruntime.InferenceSession(str(path), settings, providers=list(chosen))
        return session, onnx.load(str(path), load_external_data=False)


def _described(given: Any) -> str:
    """Session options as part of a key: an object is known by its identity alone."""
    return repr(sorted(given.items(), key=str)) if isinstance(given, Mapping) else f"{type(given).__name__} {id(given)}"


def strip(model: ir.Model) -> None:
    """Remove what says where a model came from: stack traces and scopes are most of a small model's bytes."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for graph in graphs:
        for node in graph.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
