"""Run a foreign script once, under supervision: ``python -m fxminify.backends.capture.foreign_run ASKED``.

The script makes its graph and calls ``run_repro``, which is replaced here: it calls ``torch.compile`` on the graph,
with the inputs that PyTorch's own reader loads. The hook of this process captures the failure. Exit codes: 0 for a
failure, 1 for none, 2 if the script could not be run; the reason is printed.
"""

from __future__ import annotations

import importlib
import json
import linecache
import os
import sys
import traceback
from collections.abc import Callable
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from ...store.index.documents import digest
from . import recorder
from .foreign_script import AFTER_AOT, AFTER_DYNAMO, CHECKPOINTS


def main(argument: str) -> NoReturn:
    asked = json.loads(argument)
    file = Path(asked["file"])
    sys.argv = [str(file)]
    sys.path[:0] = [os.getcwd(), str(file.parent)]
    environment = dict(os.environ)
    try:
        for module in asked["modules"]:
            importlib.import_module(module)
        _replace_runners(file, asked["backend"], environment)
        run_file(file, asked["digest"])
    except ModuleNotFoundError as exc:
        _refuse(f"{file.name} needs the module {exc.name!r}, which is not here; put its directory on PYTHONPATH")
    except Exception as exc:  # noqa: BLE001  the script is any program
        traceback.print_exc()
        _refuse(f"{file.name} fails before its graph reaches a backend: {type(exc).__name__}")
    _refuse(f"{file.name} ended without a call of run_repro")


def run_file(file: Path, agreed: str) -> None:
    """Execute the script as ``python FILE`` does, if its bytes are those that a person agreed to."""
    source = file.read_bytes()
    if digest(source) != agreed:
        _refuse(f"{file.name} is not what it was when you were asked about it: run the same command again")
    module, text = ModuleType("__main__"), decode_source(source)
    module.__file__ = str(file)
    linecache.cache[str(file)] = len(text), None, text.splitlines(keepends=True), str(file)
    sys.modules["__main__"] = module
    exec(compile(source, str(file), "exec", dont_inherit=True), vars(module))  # noqa: S102  what importing is for


def _replace_runners(file: Path, backend: Any, environment: dict[str, str]) -> None:
    for name in (AFTER_DYNAMO, AFTER_AOT):
        module: Any = importlib.import_module(name)

        def run_repro(mod: Any, load_args: Any, *, _after: str = name, **given: Any) -> NoReturn:
            for variable in [v for v in os.environ if v.endswith("_DIR") and os.environ[v] != environment.get(v)]:
                del os.environ[variable]  # a directory of the machine where the script was written
            os.environ.update(environment)
            if backend is not None:
                given["backend"] = backend
            _hand_over(file, mod, load_args, _after, **given)

        module.run_repro = run_repro


def _hand_over(
    file: Path,
    mod: Any,
    load_args: Any,
    after: str,
    *,
    save_dir: str | None = None,
    autocast: bool = False,
    backend: Any = "inductor",
    tracing_mode: str = "real",
    **ignored: Any,
) -> NoReturn:
    import torch
    from torch._dynamo.debug_utils import run_fwd_maybe_bwd
    from torch._dynamo.exc import InvalidBackend

    if backend is None:
        _refuse(f"{file.name} names no backend; name it, or where it is registered: --backend NAME --import MODULE")
    if isinstance(backend, str):
        try:
            torch._dynamo.lookup_backend(backend)
        except InvalidBackend:
            _refuse(f"nothing registers the backend {backend!r} of {file.name}; name the module: --import MODULE")
    recorder.ABOUT["imported"] = f"{after.rpartition('.')[2]} {file.name}"
    folder = next((p for p in (save_dir, file.parent / CHECKPOINTS) if p and os.path.isdir(p)), None)

    def inputs() -> list[Any]:
        torch.manual_seed(0)
        values, missing = _load(load_args, folder)
        if missing:
            recorder.ABOUT["values"] = f"random for {missing}, which the script did not bring with it"
        return values

    loaded = inputs()
    devices = {v.device.type for v in loaded if isinstance(v, torch.Tensor)} - {"cpu"}
    with torch.amp.autocast(next(iter(sorted(devices)), "cpu"), enabled=autocast):
        call: Callable[[Any, list[Any]], object] = lambda f, values: f(*values)  # noqa: E731
        if after == AFTER_DYNAMO:
            call = lambda f, values: run_fwd_maybe_bwd(f, values, disable_clone=True)  # noqa: E731
        try:
            call(mod, loaded)
        except Exception as exc:  # noqa: BLE001  eager on any graph
            _refuse(f"the graph of {file.name} fails in eager already: {type(exc).__name__}: {exc}")
        compiled = torch.compile(mod, backend=backend, dynamic=True if tracing_mode == "symbolic" else None)
        try:
            for _ in range(2):
                call(compiled, inputs())
        except Exception as exc:  # noqa: BLE001  whatever the backend raises; the hook has seen it
            if not recorder.STORED:
                _refuse(f"{file.name} fails outside its backend: {type(exc).__name__}: {exc}")
    if recorder.STORED:
        sys.exit(0)
    _say(f"{file.name} shows no failure here, nothing was stored")
    sys.exit(1)


def _load(load_args: Callable[[Any], None], folder: Any) -> tuple[list[Any], str]:
    """The inputs that the script describes, and how many of their storages had to be made up."""
    from torch._dynamo.debug_utils import InputReader

    made_up = [0, 0]

    class Reader(InputReader):
        def storage(self, storage_hash: Any, nbytes: int, **known: Any) -> Any:
            made_up[1] += 1
            kept = folder is not None and storage_hash is not None
            if not kept or not os.path.exists(os.path.join(folder, "storages", storage_hash)):
                made_up[0] += 1
            return super().storage(storage_hash, nbytes, **known)

    reader = Reader(None if folder is None else str(folder))
    load_args(reader)
    missing, total = made_up
    return reader.args, f"{missing} of {total} storages" if missing else ""


def _say(text: str) -> None:
    print(f"minify: {text}", file=sys.stderr, flush=True)


def _refuse(reason: str) -> NoReturn:
    _say(reason)
    sys.exit(2)


if __name__ == "__main__":
    from fxminify.backends.capture import foreign_run

    foreign_run.main(sys.argv[1])
