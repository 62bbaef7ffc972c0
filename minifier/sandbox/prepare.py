"""Import what a worker needs before it serves, and detect that a request changed the state of its process.

Compilers are set to one thread and no pool of processes *before* they are imported. A process that has used several
threads, or that owns a compile pool, hangs in its forked children. Nothing is compiled or run here.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import traceback
from functools import cache
from typing import Any

from ...backends.adapters import adapter_of, adapters
from ...backends.capture.startup import DATABASE, SWITCH
from .messages import Ready, Setup
from .processes import threads

#: Modules that a first compilation would import: paid once in the zygote instead of once in each worker.
_TORCH = (
    "torch", "torch._dynamo", "torch._functorch.aot_autograd", "torch.fx.experimental.symbolic_shapes",
    "fxminify.minifier.oracle.observe", "fxminify.minifier.tracing.recorder",
)  # fmt: skip

#: Set in the environment before anything is imported, with what adapters add.
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",  # threads that spin while they wait take the processors of the other workers
    "TOKENIZERS_PARALLELISM": "false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # to ask for CUDA while importing does not initialise it: a fork can use it
}
#: Would make torch dump, log or swallow the failures under study, or capture the failures of candidates.
UNWANTED = (
    "TORCHDYNAMO_REPRO_AFTER", "TORCHDYNAMO_REPRO_LEVEL", "TORCH_LOGS", "TORCH_TRACE", "TORCHDYNAMO_VERBOSE", SWITCH,
    DATABASE,
)  # fmt: skip

#: Variables that libraries of compilers set for themselves when they are first used; adapters add more.
_LIBRARIES_OWN = ("CUDA_MODULE_LOADING", "KMP_", "TF_")


class CannotImport(Exception):
    """``module`` failed to import; ``error`` is the reason as a person reads it."""

    def __init__(self, module: str, error: str) -> None:
        super().__init__(f"cannot import {module}: {error}")
        self.module = module
        self.error = error


def worker_environment() -> dict[str, str]:
    """The environment variables of processes in which candidates are compiled, whatever their backend."""
    added = [adapter.worker_environment for adapter in adapters().values()]
    return _ENVIRONMENT | {name: value for variables in added for name, value in variables.items()}


def prepare(setup: Setup) -> Ready:
    """Import torch, the backend and the case's own libraries. Raises `CannotImport` naming the one that failed."""
    sys.path[:0] = [p for p in setup.path if p not in sys.path]
    if setup.backend is None:
        return Ready(os.getpid(), threads=threads())
    os.environ.update({**setup.backend.get("environment", {}), **worker_environment()})
    gc.disable()  # imports make objects that stay: to look through them again and again is a sixth of the time
    for name in _TORCH:
        _import(name)
    import torch

    own_threads()
    torch.set_num_threads(1)
    from ...backends.provenance import libraries
    from ...backends.provenance.spec import BackendSpec, extend_path
    from ...backends.running import devices

    spec = BackendSpec.from_json(setup.backend)
    extend_path(spec.search_path)
    for name in (*adapter_of(spec.name).preload, *spec.modules()):
        _import(name)
    try:
        libraries.load(setup.imports)
    except Exception as exc:  # foreign code: whatever it raises is the answer
        raise CannotImport(", ".join(_import_name(i) for i in setup.imports), _reason(exc)) from exc
    try:
        spec.load()
    except Exception as exc:  # foreign code: whatever it raises is the answer
        raise CannotImport(spec.module or spec.name, _reason(exc)) from exc
    _warm()
    gc.enable()
    return Ready(os.getpid(), torch.__version__, threads(), bool(devices.initialised()))


@cache
def own_threads() -> int:
    """Return torch's number of threads in a process of its own. `prepare` calls it first, before it sets another."""
    import torch

    return torch.get_num_threads()


def preload(modules: list[str]) -> None:
    """Import the modules that workers imported, in the same order, as far as they can be imported by name."""
    for name in modules:
        if name not in sys.modules:
            with contextlib.suppress(BaseException):  # generated code has names that cannot be imported
                importlib.import_module(name)
    if modules:
        _warm()
        gc.collect()
        gc.freeze()


def _warm() -> None:
    for adapter in adapters().values():
        adapter.warm()


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except BaseException as exc:  # foreign code, even sys.exit(): whatever it raises is the answer
        raise CannotImport(name, _reason(exc)) from exc


def _reason(exc: BaseException) -> str:
    return "".join(traceback.format_exception_only(exc)).strip()


def _import_name(item: Any) -> str:
    return str(item.get("module") or item.get("library") or "<source>") if isinstance(item, dict) else str(item)


def fingerprint() -> dict[str, str]:
    """The state of this process that a request must leave as it found it, by name."""
    own = (*_LIBRARIES_OWN, *(beginning for adapter in adapters().values() for beginning in adapter.sets_variables))
    state = {"current directory": os.getcwd(), **{f"${k}": v for k, v in os.environ.items() if not k.startswith(own)}}
    torch = sys.modules.get("torch")
    if torch is not None:
        from ...store.live import modes

        state |= {
            "default dtype": str(torch.get_default_dtype()),
            "default device": str(torch.get_default_device()),
            "threads": str(torch.get_num_threads()),
            "matmul precision": torch.get_float32_matmul_precision(),
            **modes.active(),
        }
    return state


def changes(before: dict[str, str], after: dict[str, str]) -> str:
    """Names of what differs, and for anything but the environment from what to what; empty if nothing does."""
    names = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    return ", ".join(n if n.startswith("$") else f"{n} (from {before.get(n)} to {after.get(n)})" for n in names)
