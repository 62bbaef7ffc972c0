"""`minify verify repro.py`: run a script from a file and check that it shows the failure that its docstring names.

The docstring has the digest of a signature. A run shows the failure if its own signature has the same digest, either
whole or without the parts that a capture may lack: the text on standard error, and the stack of a crash. What fails in
source that the script copied counts as failing in the file it is from, which the docstring names, too.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...backends.running.confinement import wanted
from ...repro_templates.context import copied_from
from ...repro_templates.processes import Processes
from ...repro_templates.source.inputs import SIDE_FILE
from ...repro_templates.verify import verify
from ...store.errors import StoreError
from ...store.failure import Failure
from ...store.parsing import parse
from ...store.signature import SIGNATURE_VERSION, signature

#: The largest file that is read as a script.
MOST_BYTES = 4 << 20
_SIGNATURE = re.compile(r"\bSignature (v\d+:[0-9a-f]{12})\b")


def verify_file(path: Path, *, runs: int, timeout: float, sandbox: bool = False) -> dict[str, Any]:
    """Run the script in ``path`` in fresh processes, with the data file beside it, and return what they showed.

    Raises `StoreError` where the file is no script of ours, and `NoConfinement` where a ``sandbox`` cannot be had.
    """
    text = _read(path)
    named_digest = named(text)
    if named_digest is None:
        raise StoreError(f"{path} names no signature in its docstring: it is no script that `minify repro` wrote")
    if not named_digest.startswith(f"v{SIGNATURE_VERSION}:"):
        raise StoreError(
            f"{path} names a signature of version {named_digest[1:].partition(':')[0]}, which an older fxminify wrote, "
            f"and this one compares version {SIGNATURE_VERSION}: run the script itself, or minify again and "
            f"print it anew with minify repro"
        )
    beside = path.with_name(SIDE_FILE)
    files = {SIDE_FILE: beside.read_bytes()} if SIDE_FILE in text and beside.exists() else {}
    with Processes(wanted(sandbox)) as processes:
        done = verify(
            text, lambda failure: named_digest in digests(failure), runs=runs, timeout=timeout,
            search_path=python_path(), files=files, embedded=copied_from(_docstring(text)), processes=processes,
        )  # fmt: skip
    other = next((signature(failure).digest for failure in done.failures if failure is not None), "")
    return {
        "file": str(path), "shown": done.shown, "runs": done.runs, "signature": named_digest, "mismatch": done.mismatch,
        "cannot_run": "" if done.shown else done.blocked_reason,
        "other_signature": "" if other == named_digest else other,
    }  # fmt: skip


def copies(text: str, folders: Iterable[Path]) -> list[Path]:
    """Return the files ``repro*.py`` in ``folders`` that have exactly this ``text``.

    `minify catch` and `minify repro -o` wrote them, under the names that they and the documentation give. A file
    that cannot be read is skipped.
    """
    wanted, found = text.encode(), []
    for path in sorted({path for folder in folders for path in folder.glob("repro*.py")}):
        with suppress(OSError):
            if path.stat().st_size == len(wanted) and path.read_bytes() == wanted:
                found.append(path)
    return found


def named(script: str) -> str | None:
    """The digest of the signature that the docstring of a script names."""
    found = _SIGNATURE.search(_docstring(script))
    return None if found is None else found[1]


def digests(failure: Failure) -> set[str]:
    """The digests of the signature of ``failure``, whole and without what a capture may lack."""
    whole = signature(failure)
    known = [
        whole,
        replace(whole, diagnostics=""),
        replace(whole, operator=""),
        replace(whole, diagnostics="", operator=""),
    ]
    known += [replace(one, origin="") for one in known if failure.kind == "crash"]
    return {digest for one in known for digest in (one.digest, one.named)}


def python_path() -> list[str]:
    """The directories on ``PYTHONPATH``: part of today's installation."""
    return [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _docstring(script: str) -> str:
    """The docstring of a script, empty where it has none or is no Python."""
    try:
        return ast.get_docstring(parse(script)) or ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise StoreError(f"{path} is too large for a script that `minify repro` wrote")
        return path.read_text("ascii")
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} is not ASCII: it is no script that `minify repro` wrote") from error
