"""Run a code block of an issue as a program, under supervision: ``python -m ...capture.block_run ASKED``.

``ASKED`` is JSON with the ``file`` of the block and its ``digest``, the ``modules`` to import first, a ``backend`` that
replaces the one that the block names, and the file ``ended``, which gets the exception that ended the block.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import recorder
from .foreign_run import run_file


def main(argument: str) -> None:
    asked = json.loads(argument)
    file = Path(asked["file"])
    sys.argv = [str(file)]
    sys.path[:0] = [os.getcwd()]
    recorder.ABOUT["imported"] = f"{file.stem.replace('_', ' ')} of an issue"
    try:
        for module in asked["modules"]:
            importlib.import_module(module)
        if asked["backend"] is not None:
            _replace_backend(asked["backend"])
        run_file(file, asked["digest"])
    except Exception as exc:
        Path(asked["ended"]).write_text(f"{type(exc).__name__}: {exc}", "utf-8")
        raise


def _replace_backend(backend: str) -> None:
    """Let `torch.compile` use ``backend``, without the options of the one that the program names."""
    import torch

    original: Any = torch.compile

    @functools.wraps(original)
    def compile_with(*args: Any, **options: Any) -> Any:
        kept = {name: value for name, value in options.items() if name not in ("backend", "mode", "options")}
        return original(*args, **kept, backend=backend)

    torch.compile = compile_with


if __name__ == "__main__":
    from fxminify.backends.capture import block_run

    block_run.main(sys.argv[1])
