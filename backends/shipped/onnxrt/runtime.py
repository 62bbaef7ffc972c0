"""Running a session on tensors, without copies: `Runner`.

Inputs are passed to ONNX Runtime by address; results come back through DLPack and own their memory. The fast call is in
ONNX Runtime's private module. If it is missing, or a type has no NumPy name (bfloat16), the public ``OrtValue`` is
used. Results of ONNX Runtime are contiguous. If the graph promises other strides, the result is copied into that
layout, because AOTAutograd builds views of results by stride.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import onnx
import onnx_ir as ir
import onnxruntime  # type: ignore[import-untyped]
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as _state  # type: ignore[import-untyped]
from torch.utils.dlpack import from_dlpack

from ..options_reader import InvalidOption, choose
from . import exporter
from .options import NAME, OnnxrtOptions
from .patterns import hint
from .translate import Translation

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
        choose(entry if isinstance(entry, str) else entry[0], available, "execution provider", NAME)
    return chosen


def session_options(given: Any) -> onnxruntime.SessionOptions:
    """Convert the option ``session_options``. Raises `InvalidOption`."""
    if isinstance(given, onnxruntime.SessionOptions):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise InvalidOption(f"option 'session_options' is a SessionOptions or a dict, not {type(given).__name__}")
    out = onnxruntime.SessionOptions()
    out.log_severity_level = 4  # errors come as exceptions
    known = [name for name in dir(out) if not name.startswith("_") and not callable(getattr(out, name))]
    for name, value in (given or {}).items():
        if "." in name:
            out.add_session_config_entry(name, str(value))
        else:
            kind = type(getattr(out, choose(name, known, "session option", NAME)))
            setattr(out, name, getattr(kind, value) if isinstance(value, str) and hasattr(kind, value) else value)
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
    """Session options as part of a key. An object is identified by its identity."""
    return repr(sorted(given.items(), key=str)) if isinstance(given, Mapping) else f"{type(given).__name__} {id(given)}"


def strip(model: ir.Model) -> None:
    """Remove stack traces and scopes, which are most of a small model's bytes."""
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


_FAST = all(hasattr(_state, name) for name in ("OrtValueVector", "OrtDevice")) and hasattr(
    onnxruntime.InferenceSession, "run_with_ortvaluevector"
)
#: An address for tensors without elements, which have none. It is made here, outside any fake mode.
_SOMEWHERE = torch.zeros(16)


class BrokenPromise(Exception):
    """A tensor is not what the graph says."""


#: Errors of a call of a session.
RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    BrokenPromise,
    *(
        error for name in ("EPFail", "Fail", "InvalidArgument", "NotImplemented", "RuntimeException", "EngineError")
        if isinstance(error := getattr(_state, name, None), type)
    ),
)  # fmt: skip


class Runner:
    """Calls a session with the inputs of an FX graph and returns the results of the graph in a list."""

    def __init__(
        self, gm: torch.fx.GraphModule, session: onnxruntime.InferenceSession, translation: Translation
    ) -> None:
        holders = gm.graph.find_nodes(op="placeholder")
        values = [holders[position].meta["val"] for position, _ in translation.inputs]
        self._session = session
        self._results = translation.results
        self._positions = [position for position, _ in translation.inputs]
        self._input_names = [name for _, name in translation.inputs]
        self._input_types = [exporter.dtype_of(v) for v in values]
        self._numpy_types = [exporter.NUMPY.get(t) for t in self._input_types]
        self._output_names = [output.name for output in session.get_outputs()]
        computed = [node.meta["val"] for node in translation.results.computed]
        self._finish = [finish(v) for v in computed]
        self._trivial = all(finish is None for finish in self._finish)
        self._run_options = onnxruntime.RunOptions()
        self._run_options.log_severity_level = 4
        self._lent = [_device(v) for v in values] if _FAST else []
        self._wanted = [_device(v) for v in computed] if _FAST else []
        self._plain = translation.results.plain
        everything = [*self._input_types, *(exporter.dtype_of(v) for v in computed)]
        self._fast = _FAST and all(t in exporter.NUMPY for t in everything)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run. Raises one of `RUNTIME_ERRORS`."""
        tensors = [_lend(inputs[p], t) for p, t in zip(self._positions, self._input_types, strict=True)]
        values = self._run_fast(tensors) if self._fast else self._run_public(tensors)
        if not self._trivial:
            values = [v if f is None else f(v) for f, v in zip(self._finish, values, strict=True)]
        return values if self._plain else self._results.assemble(inputs, values)

    def _run_fast(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        lent, out = _state.OrtValueVector(), _state.OrtValueVector()
        lent.reserve(len(tensors))
        somewhere = _SOMEWHERE.data_ptr()
        addresses = [t.data_ptr() or somewhere for t in tensors]
        lent.push_back_batch(tensors, addresses, self._numpy_types, [t.shape for t in tensors], self._lent)
        self._session.run_with_ortvaluevector(
            self._run_options, self._input_names, lent, self._output_names, out, self._wanted
        )
        return [from_dlpack(out.dlpack_at(i)) for i in range(len(out))]

    def _run_public(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        lent = {n: _ort_value(t) for n, t in zip(self._input_names, tensors, strict=True)}
        values = self._session.run_with_ort_values(self._output_names, lent, self._run_options)
        return [from_dlpack(value) for value in values]


def _lend(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return the tensor whose memory the session reads: contiguous, without pending conjugation or negation.

    Raises `BrokenPromise` for a tensor of another dtype: some operators give another one than their meta function says.
    """
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value, dtype=dtype)
    if value.dtype is not dtype:
        raise BrokenPromise(f"an input is {value.dtype}, and the graph promises {dtype}")
    if value.requires_grad:
        value = value.detach()
    if value.is_neg():
        value = value.resolve_neg()
    tensor: torch.Tensor = value if value.is_contiguous() else value.contiguous()
    return tensor


def _ort_value(tensor: torch.Tensor) -> Any:
    """Return an ONNX Runtime value in the memory of ``tensor``. It takes booleans as bytes only."""
    if tensor.dtype is not torch.bool:
        return onnxruntime.OrtValue.from_dlpack(tensor)
    return onnxruntime.OrtValue(_state.OrtValue.from_dlpack(tensor.view(torch.uint8).__dlpack__(), True))


def _device(value: Any) -> Any:
    """The ONNX Runtime device of a tensor; numbers are on the CPU."""
    kind = _state.OrtDevice
    memory = kind.default_memory()
    if isinstance(value, torch.Tensor) and value.device.type == "cuda":
        return kind(kind.cuda(), memory, value.device.index or 0)
    return kind(kind.cpu(), memory, 0)


def finish(expected: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The conversion of a result into the tensor that the graph promises; None if there is nothing to do."""
    if not isinstance(expected, torch.Tensor):
        return None
    boolean = expected.dtype == torch.bool  # DLPack may carry it as bytes
    if _exact(expected):
        size, stride = tuple(expected.shape), expected.stride()

        def spread_out(value: torch.Tensor) -> torch.Tensor:
            value = _as_bool(value) if boolean else value
            out = torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
            return out.copy_(value)

        return spread_out
    order = _order(expected)
    if order is None:
        return _as_bool if boolean else None
    back = sorted(range(len(order)), key=order.__getitem__)

    def lay_out(value: torch.Tensor) -> torch.Tensor:
        value = _as_bool(value) if boolean else value
        return value.permute(order).contiguous().permute(back)

    return lay_out


def _as_bool(value: torch.Tensor) -> torch.Tensor:
    return value if value.dtype == torch.bool else value.view(torch.bool)


def _exact(expected: torch.Tensor) -> bool:
    """Whether a result has known sizes and gaps between elements, but no elements that share memory."""
    described = [*expected.shape, *expected.stride()]
    if any(not isinstance(s, int) for s in described) or expected.numel() < 2:
        return False
    step, gaps = 1, False
    for stride, size in sorted((st, s) for st, s in zip(expected.stride(), expected.shape, strict=True) if s > 1):
        if stride < step:
            return False
        gaps |= stride > step
        step = stride * size
    return gaps


def _order(expected: torch.Tensor) -> list[int] | None:
    """The dimensions from the slowest to the fastest; None if they are in this order."""
    strides = [hint(s) for s in expected.stride()]
    sizes = [hint(s) for s in expected.shape]
    order = sorted(range(len(strides)), key=lambda d: (-strides[d], d))
    laid_out = [d for d in order if sizes[d] != 1]
    return None if 0 in (*sizes, *strides) or laid_out == sorted(laid_out) else order
