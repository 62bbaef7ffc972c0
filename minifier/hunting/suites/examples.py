"""The suite ``examples``: the Python files of a folder, each with a function ``make()``.

``make()`` returns a function or a module, and a tuple of its inputs. The environment variable ``FXMINIFY_EXAMPLES``
names the folder; by default it has the failures of other backends in a checkout of fxminify (``tests/failures``).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from ast import FunctionDef
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch

from ....store.errors import StoreError
from ....store.parsing import parse
from ..programs import CPU, PreparedProgram, Program, Selection

#: The environment variable with the folder.
FOLDER = "FXMINIFY_EXAMPLES"
_CHECKOUT = Path(__file__).parents[3] / "tests" / "failures"


class Examples:
    """The files of a folder as a `fxminify.minifier.hunting.programs.Suite`."""

    def programs(self, wanted: Selection) -> Iterator[Program]:
        for file in sorted(_folder().glob("*.py")):
            if wanted.has(file.stem) and _makes(file):
                for gradient, dynamic in itertools.product(wanted.gradient, wanted.dynamic):
                    yield Program(
                        "examples", file.stem, "", gradient, dynamic, seed=wanted.seed, calls=1, device=wanted.device
                    )

    def prepare(self, program: Program) -> PreparedProgram:
        torch.manual_seed(program.seed)
        function, inputs = _loaded(_folder() / f"{program.name}.py").make()
        if program.device != CPU:
            inputs = tuple(v.to(program.device) if isinstance(v, torch.Tensor) else v for v in inputs)
            function = function.to(program.device) if isinstance(function, torch.nn.Module) else function
        if not program.gradient and isinstance(function, torch.nn.Module):
            function.requires_grad_(False)
        if program.gradient:
            inputs = tuple(_differentiable(value) for value in inputs)
        return PreparedProgram(function, [(tuple(inputs), {})], program.gradient)


def _folder() -> Path:
    folder = Path(os.environ.get(FOLDER) or _CHECKOUT)
    if not folder.is_dir():
        raise StoreError(f"the suite examples needs a folder of programs, and {folder} does not exist: set {FOLDER}")
    return folder


def _makes(file: Path) -> bool:
    """Return whether a file defines ``make``. It is not run."""
    try:
        tree = parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, FunctionDef) and node.name == "make" for node in tree.body)


def _loaded(file: Path) -> ModuleType:
    name = f"fxminify_example_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _differentiable(value: object) -> object:
    if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()) and value.is_leaf:
        return value.requires_grad_()
    return value


suite = Examples()
