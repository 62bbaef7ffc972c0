"""Foreign scripts: the programs that PyTorch's own tools write about a failure, which call ``run_repro``.

``repro.py`` and ``minifier_launcher.py`` (``TORCHDYNAMO_REPRO_AFTER``, after Dynamo or after AOTAutograd) and
Inductor's ``fx_graph_runnable.py`` have this form. Such a file has a graph and its inputs, but no failure. So the graph
is given to its backend again in a supervised process (`backends.capture.foreign_run`), where crashes and hangs are
captured, too. This module only reads the file.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...store.errors import StoreError
from ...store.index import CaptureInfo
from ...store.index.changes import Changes
from ...store.index.documents import digest
from ...store.parsing import parse
from ..provenance.syntax import imported_modules
from . import supervise
from .settings import Settings

#: The modules whose ``run_repro`` such a script calls.
AFTER_DYNAMO = "torch._dynamo.repro.after_dynamo"
AFTER_AOT = "torch._dynamo.repro.after_aot"
#: The name of a folder with the inputs, where the folder that the script names is on another machine.
CHECKPOINTS = "checkpoints"


class NotForeign(StoreError):
    """The file is not one of PyTorch's scripts; the message says why and what to type."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """The contents of a script, read before it runs, and the digest of its bytes.

    ``accuracy``: its failure is wrong numbers.
    """

    path: Path
    digest: str
    after: str
    accuracy: bool
    imports: tuple[str, ...]

    def question(self) -> str:
        """The question whether to run it, for a person to agree to."""
        loads = ", ".join(name for name in self.imports if name not in ("os", "math"))
        return f"{self.path} is a program. Importing it\n  - runs it\n  - imports {loads}\nRun it?"


def read(path: Path) -> Foreign:
    """Look at the file at ``path`` without running it. Raises `NotForeign`."""
    try:
        content = path.read_bytes()
        tree = parse(content, path.name)
    except OSError as error:
        raise NotForeign(f"cannot read {path}: {error.strerror}.") from error
    except (SyntaxError, ValueError) as error:
        place = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise NotForeign(f"{path} is not Python{place}: {getattr(error, 'msg', error)}.") from error
    nodes = list(ast.walk(tree))
    after = [
        node.module or ""
        for node in nodes
        if isinstance(node, ast.ImportFrom) and any(a.name == "run_repro" for a in node.names)
    ]
    calls = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "run_repro"]
    if not calls or not after or after[0] not in (AFTER_DYNAMO, AFTER_AOT):
        raise NotForeign(
            f"{path} does not call PyTorch's run_repro: it is no repro.py, minifier_launcher.py or "
            f"fx_graph_runnable.py. To capture the failures of a program: minify capture {path}"
        )
    given = {k.arg: k.value.value for k in calls[0].keywords if k.arg and isinstance(k.value, ast.Constant)}
    tops = tuple(sorted({name.partition(".")[0] for name in imported_modules(tree)}))
    return Foreign(path, digest(content), after[0], bool(given.get("accuracy")), tops)


def take(
    db: str,
    scripts: Sequence[Path],
    *,
    modules: Sequence[str] = (),
    backend: str | None = None,
    timeout: float | None = None,
    check: bool = False,
    confirm: Callable[[str], bool] = lambda question: False,
    stdout: int | None = None,
) -> tuple[list[CaptureInfo], bool]:
    """Run ``scripts`` once each and capture what their backends do; the captures, and whether each script gave one.

    ``modules`` are imported first, for the backends and operators they register; ``backend`` replaces the one that a
    script names. ``timeout`` is in seconds, for one compile or call. ``stdout`` is the file descriptor of the scripts'
    output. Raises `NotForeign` before anything runs.
    """
    found = [read(path) for path in scripts]
    changes = Changes(db)
    complete = True
    for script in found:
        if not confirm(script.question()):
            raise NotForeign(f"{script.path} was not run: it was not trusted (--trust).")
        asked = {
            "file": os.path.abspath(script.path), "digest": script.digest, "modules": list(modules), "backend": backend,
        }  # fmt: skip
        argv = ["fxminify.backends.capture.foreign_run", json.dumps(asked)]
        settings = Settings(check=check or script.accuracy)
        captured = len(changes.rows())
        code = supervise.run(db, argv, settings, module=True, timeout=timeout, stdout=stdout)
        if code == 2:
            raise NotForeign(f"{script.path} could not be imported.")
        if code in (129, 130, 143):
            raise KeyboardInterrupt
        complete = complete and (code == 0 or len(changes.rows()) > captured)
    return changes.rows(), complete
