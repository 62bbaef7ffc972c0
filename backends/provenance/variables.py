"""The environment variables that a backend reads.

The adapter of the backend names some. Others are arguments of ``os.environ`` and ``os.getenv`` in the source of its
modules. A variable counts if it is set in the process in which the backend failed. Its value is kept only where it is
public: a number, a switch, or a word that the source of the backend has, too. Of all others the name is kept.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from ...store.document.recreation import LOADS_CODE, PLAIN_VALUE
from ...store.private_values import here, names_secret
from ..adapters import adapter_of
from .spec import BackendSpec

#: Variables that every process inherits, whatever its backend is.
ORDINARY = (
    "PATH", "HOME", "TMPDIR", "TMP", "TEMP", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TZ",
    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CC", "CXX", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "TERM", "TERM_PROGRAM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "SHELL", "SHLVL",
    "USER", "LOGNAME", "USERNAME", "HOSTNAME", "PWD", "OLDPWD", "DISPLAY", "EDITOR", "VISUAL", "PAGER", "BROWSER",
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "JPY_PARENT_PID",
)  # fmt: skip
#: The exit code of a script that cannot run here, as of `git bisect run`, and how it says why.
CODE = 125
CANNOT_RUN = "cannot run: "
#: The beginning of the sentence in a script. Fresh runs of the script get the variables that it names.
SENTENCE = "Environment variables that the backend reads: "
_SENTENCE_PATTERN = re.compile(re.escape(SENTENCE).replace(r"\ ", r"\s+") + r"([\w,\s]+)\.")
_READ = re.compile(
    r"""environ(?:\.get|\.setdefault|\.pop)?\s*[\[(]\s*["'](\w+)["']"""
    r"""|getenvb?\s*\(\s*["'](\w+)["']"""
    r"""|["'](\w+)["']\s+(?:not\s+)?in\s+(?:os\s*\.\s*)?environ\b"""
)
#: Values that say nothing about who set them.
_PUBLIC = re.compile(r"-?\d{1,5}(?:\.\d{1,5})?|true|false|yes|no|on|off|all|none|default|auto", re.IGNORECASE)
_OURS = __name__.partition(".")[0]
#: The most files of a backend that are read, and the most bytes of a file.
_MOST_FILES, _MOST_BYTES = 300, 1 << 20


def read_by(spec: BackendSpec) -> tuple[str, ...]:
    """Names of the environment variables that are set here and that the backend of ``spec`` reads, sorted."""
    adapter = adapter_of(spec.name)
    read = {name for text in _sources(spec) for name in _names(text)}
    read |= {n for n in os.environ for pattern in adapter.environment_variables if fnmatchcase(n, pattern)}
    read -= {*ORDINARY, *(cache.variable for cache in adapter.caches), *adapter.worker_environment}
    return tuple(sorted(name for name in read if name in os.environ and _is_named(name)))


def public_values(spec: BackendSpec) -> dict[str, str]:
    """The values of those ``variables`` of ``spec`` that are no secret and say nothing about a person or a machine."""
    return {name: os.environ[name] for name in spec.variables if name in os.environ and _is_public(name, spec)}


def _is_public(name: str, spec: BackendSpec) -> bool:
    value = os.environ[name]
    if names_secret(name) or LOADS_CODE.match(name) or here().besides(name).mask(value) != value:
        return False
    if _PUBLIC.fullmatch(value):
        return True
    if not PLAIN_VALUE.fullmatch(value):
        return False
    if any(fnmatchcase(name, pattern) for pattern in adapter_of(spec.name).environment_variables):
        return True
    quoted = (f'"{value}"', f"'{value}'")
    return any(name in text and any(q in text for q in quoted) for text in _sources(spec, whole=True))


def lines(values: Mapping[str, str], required: Iterable[str]) -> list[str]:
    """The first lines of a script: they set variables, and end it where one is missing that must be set."""
    required = list(required)
    if not values and not required:
        return []
    out = ["import os", *(["import sys"] if required else []), ""]
    for name in required:
        out += [
            f'if "{name}" not in os.environ:',
            f'    print("{CANNOT_RUN}set {name}, which the backend reads", file=sys.stderr)',
            f"    sys.exit({CODE})",
        ]
    out += [""] if values and required else []
    return [*out, *(f"os.environ[{_quoted(name)}] = {_quoted(value)}" for name, value in sorted(values.items()))]


def _quoted(text: str) -> str:
    return f'"{text}"' if text.isascii() and text.isprintable() and not set(text) & set('"\\') else ascii(text)


def _is_named(name: str) -> bool:
    """Whether ``name`` is an identifier and may affect the backend. The place of a cache and a running test do not."""
    of_python = name.startswith(("PYTHON", "PYTEST_"))
    return name.isidentifier() and name.isascii() and not of_python and "_CACHE" not in name


def named(script: str) -> list[str]:
    """Names of the variables that its backend reads, according to ``script``."""
    found = _SENTENCE_PATTERN.search(script)
    return re.findall(r"\w+", found[1]) if found else []


def sentence(names: Iterable[str]) -> str:
    """Return the sentence of a script about ``names``, or an empty text without names."""
    names = list(names)
    return f"{SENTENCE}{', '.join(names)}." if names else ""


def _names(text: str) -> set[str]:
    return {name for found in _READ.findall(text) for name in found if name}


def _sources(spec: BackendSpec, *, whole: bool = False) -> Iterator[str]:
    """Source texts: embedded source, loaded modules of the backend's packages, and loaded modules beside them. Of files
    the lines with ``env`` in them, or with ``whole`` all lines."""
    yield from (way.source.source for way in spec.ways() if way.source is not None)
    packages = {name.partition(".")[0] for name in spec.modules()}
    places = [path for path in spec.search_path if not Path(path, "torch").exists()]  # not another installation
    beside = tuple(os.path.join(os.path.abspath(path), "") for path in places)
    others = ("__main__", *(() if _OURS in packages else (_OURS,)))
    modules = [(name, m) for name, m in list(sys.modules.items()) if name.partition(".")[0] not in others]
    loaded = [(name, str(getattr(module, "__file__", "") or "")) for name, module in modules]
    own = [file for name, file in loaded if name.partition(".")[0] in packages]
    own += [file for _, file in loaded if beside and os.path.abspath(file).startswith(beside)]
    for file in list(dict.fromkeys(file for file in own if file.endswith(".py")))[:_MOST_FILES]:
        yield _whole(file) if whole else _text(file)


@lru_cache(maxsize=1024)
def _text(file: str) -> str:
    """The lines of ``file`` that contain ``env``, empty if the file cannot be read."""
    return "\n".join(line for line in _whole(file).splitlines() if "env" in line)


def _whole(file: str) -> str:
    try:
        with Path(file).open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_MOST_BYTES)
    except OSError:
        return ""
