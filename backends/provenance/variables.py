"""The environment variables that a backend reads. Only names are kept, no values.

The adapter of the backend names some. Others are arguments of ``os.environ`` and ``os.getenv`` in the source of its
modules. A variable counts if it is set in the process in which the backend failed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from ..adapters import adapter_of
from .spec import BackendSpec

#: Variables that every process inherits, whatever its backend is.
ORDINARY = (
    "PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CC",
    "CXX", "XDG_CACHE_HOME",
)  # fmt: skip
#: The beginning of the sentence in a script. Fresh runs of the script get the variables that it names.
SENTENCE = "Environment variables that the backend reads: "
_SAID = re.compile(re.escape(SENTENCE).replace(r"\ ", r"\s+") + r"([\w,\s]+)\.")
_READ = re.compile(
    r"""environ(?:\.get|\.setdefault|\.pop)?\s*[\[(]\s*["'](\w+)["']"""
    r"""|getenvb?\s*\(\s*["'](\w+)["']"""
    r"""|["'](\w+)["']\s+(?:not\s+)?in\s+(?:os\s*\.\s*)?environ\b"""
)
_OURS = __name__.partition(".")[0]
#: The most files of a backend that are read, and the most bytes of a file.
_MOST_FILES, _MOST_BYTES = 300, 1 << 20


def read_by(spec: BackendSpec) -> tuple[str, ...]:
    """Names of the environment variables that are set here and that the backend of ``spec`` reads, sorted."""
    adapter = adapter_of(spec.name)
    read = {name for text in _sources(spec) for name in _names(text)}
    read |= {n for n in os.environ for pattern in adapter.environment_variables if fnmatchcase(n, pattern)}
    read -= {*ORDINARY, *adapter.cache_variables, *adapter.worker_environment}
    return tuple(sorted(name for name in read if name in os.environ and _is_named(name)))


def _is_named(name: str) -> bool:
    """Whether ``name`` is an identifier and may affect the backend. The place of a cache and a running test do not."""
    of_python = name.startswith(("PYTHON", "PYTEST_"))
    return name.isidentifier() and name.isascii() and not of_python and "_CACHE" not in name


def named(script: str) -> list[str]:
    """Names of the variables that its backend reads, according to ``script``."""
    found = _SAID.search(script)
    return re.findall(r"\w+", found[1]) if found else []


def sentence(names: Iterable[str]) -> str:
    """The sentence of a script about ``names``, empty if there are none."""
    names = list(names)
    return f"{SENTENCE}{', '.join(names)}." if names else ""


def _names(text: str) -> set[str]:
    return {name for found in _READ.findall(text) for name in found if name}


def _sources(spec: BackendSpec) -> Iterator[str]:
    """Source texts: embedded source, loaded modules of the backend's packages, and loaded modules beside them."""
    if spec.source is not None:
        yield spec.source.source
    packages = {name.partition(".")[0] for name in spec.modules()}
    places = [path for path in spec.search_path if not Path(path, "torch").exists()]  # not another installation
    beside = tuple(os.path.join(os.path.abspath(path), "") for path in places)
    others = ("__main__", *(() if _OURS in packages else (_OURS,)))
    modules = [(name, m) for name, m in list(sys.modules.items()) if name.partition(".")[0] not in others]
    loaded = [(name, str(getattr(module, "__file__", "") or "")) for name, module in modules]
    own = [file for name, file in loaded if name.partition(".")[0] in packages]
    own += [file for _, file in loaded if beside and os.path.abspath(file).startswith(beside)]
    for file in list(dict.fromkeys(file for file in own if file.endswith(".py")))[:_MOST_FILES]:
        yield _text(file)


@lru_cache(maxsize=1024)
def _text(file: str) -> str:
    """The lines of ``file`` that contain ``env``, empty if the file cannot be read."""
    try:
        with Path(file).open(encoding="utf-8", errors="replace") as opened:
            text = opened.read(_MOST_BYTES)
    except OSError:
        return ""
    return "\n".join(line for line in text.splitlines() if "env" in line)
