"""Tell a backend that is not installed from one that fails: a package, a shared library or a tool is missing here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from ...store.failure import Failure
from ..adapters import adapter_of, adapters
from ..running.exceptions import chain, one_line, text_of, type_name, unwrap

#: A message of the dynamic linker about a library of the system, which it names without a directory.
_LIBRARY = re.compile(r"(?<![\w.+/-])([\w.+-]+\.(?:so|dylib|dll)[.\d]*): cannot open shared object file")
#: Words with which an `ImportError` asks for an installation.
_ASKS = re.compile(
    r"\b(?:pip|conda) install\b|\bplease install\b|\b(?:is|are) not (?:installed|available)\b", re.IGNORECASE
)
#: How Python names a module that is missing, in a failure that is data.
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")


def absent(exc: BaseException, backend: str) -> str:
    """Return why ``backend``, which raised ``exc``, cannot run in this installation, and how to install it if
    known.

    Empty if nothing shows that a package or module is missing.
    """
    inner = unwrap(exc)
    asks = isinstance(inner, ImportError)
    for each in (inner, *(chain(inner) if asks else _causes(inner))):
        if isinstance(each, ModuleNotFoundError) and each.name and not is_there(each.name):
            return _needs(backend, f"the module {each.name.partition('.')[0]}, which is not installed here", inner)
        if isinstance(each, ImportError | OSError) and (library := _LIBRARY.search(text_of(each))):
            return _needs(backend, f"the shared library {library[1]}, which is not on this system", inner)
    if (asks and _ASKS.search(text_of(inner))) or type_name(inner) in _tools():
        return _needs(backend, "what is not installed here", inner)
    return ""


def is_absent(failure: Failure) -> str:
    """The module that was missing where ``failure`` happened, if it is missing here, too; else nothing."""
    if not failure.type.endswith(("ImportError", "ModuleNotFoundError")):
        return ""
    texts = (failure.message, *(text for _, text in failure.causes))
    named = (found[1] for text in texts if (found := _NO_MODULE.search(text)))
    return next((name for name in named if not is_there(name)), "")


def is_there(module: str) -> bool:
    """Whether the package of ``module`` can be imported here."""
    top = module.partition(".")[0]
    try:
        return top in sys.modules or find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _needs(backend: str, what: str, inner: BaseException) -> str:
    """The sentence about ``what`` is missing."""
    _, command = adapter_of(backend).needs.get(backend, ("", ""))
    then = f"; install it: {command}" if command else ""
    return f"the backend {backend} needs {what} ({one_line(inner)}){then}"


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """The exceptions that ``exc`` was raised from, explicitly."""
    seen = {id(exc)}
    while exc.__cause__ is not None and id(exc.__cause__) not in seen:
        exc = exc.__cause__
        seen.add(id(exc))
        yield exc


def _tools() -> set[str]:
    """The types of exceptions with which compilers say that a tool is missing."""
    return {kind for adapter in adapters().values() for kind in adapter.missing_tools}
