"""Text of this machine or its user that must not be stored.

That is: values of environment variables, the home directory, the names of the user and of the host. `expression_for`
returns the expression that reads such a value elsewhere. `check` refuses text that contains one. `origin` finds from
the source of a script where the value of a global comes from, and executes nothing for that.
"""

from __future__ import annotations

import ast
import builtins
import getpass
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import ModuleType
from typing import Any

from . import modules, syntax
from .modules import CannotEmbed

_SHORTEST = 6
#: Variables that contain nothing about a person.
_OPEN = re.compile(r"^(PWD|OLDPWD|SHELL|TERM|COLORTERM|COLUMNS|LINES|LANG|LC_\w+|_|PYTEST_\w+|FXMINIFY_\w+)$")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|(API|ACCESS|PRIVATE)_?KEY", re.IGNORECASE)


class Origin(IntEnum):
    """The origin of a value. If parts of it have several origins, the greatest counts."""

    INSIDE = 0  # the program, its arguments, the clock
    MACHINE = 1  # a property of the machine or the installation, which its expression can read elsewhere
    OUTSIDE = 2  # a file, a command, the network, a person


#: Prefixes of dotted names that a script uses; the longest one counts. Any other name is `Origin.MACHINE`.
_ORIGINS = {
    **dict.fromkeys(
        (
            "abc", "argparse", "base64", "click", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal",
            "enum", "fractions", "functools", "hashlib", "itertools", "json", "math", "numpy", "operator", "os.getcwd",
            "os.getpid", "os.path.join", "os.path.basename", "os.path.splitext", "os.sep", "random", "re", "statistics",
            "string", "struct", "sys.argv", "tempfile", "textwrap", "time", "torch", "types", "typing", "uuid",
        ),
        Origin.INSIDE,
    ),
    **dict.fromkeys(
        (
            "builtins.__import__", "builtins.eval", "builtins.exec", "builtins.input", "builtins.open", "configparser",
            "dotenv", "getpass.getpass", "glob", "http", "httpx", "io", "keyring", "numpy.fromfile", "numpy.load",
            "numpy.loadtxt", "os.listdir", "os.popen", "os.scandir", "os.walk", "requests", "shutil", "sqlite3",
            "subprocess", "sys.stdin", "torch.hub", "torch.load", "urllib",
        ),
        Origin.OUTSIDE,
    ),
}  # fmt: skip
_READS_FILES = frozenset({"read", "read_bytes", "read_text", "readline", "readlines", "iterdir", "glob", "rglob"})


def origin(name: str, namespace: Mapping[str, Any]) -> Origin:
    """The origin of the script's global ``name``, from the statements that touch it."""
    statements = modules.statements(namespace)
    seen: set[str] = set()
    pending, worst = [name], Origin.INSIDE
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        for node in (n for n in statements if syntax.touches(n, current)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for path, called in _used(node, namespace):
                worst = max(worst, _of_path(path))
                pending += [called] if called else []
    return worst


def _used(node: ast.AST, namespace: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Pairs for what a statement uses: a dotted path of a module or builtin, or else the name of a global."""
    inner = {id(n.value) for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    imports = {
        alias.asname or alias.name: f"{s.module}.{alias.name}"
        for s in modules.statements(namespace)
        if isinstance(s, ast.ImportFrom)
        for alias in s.names
    }
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in _READS_FILES:
            yield "builtins.open", ""
        if not isinstance(part, ast.Attribute | ast.Name) or id(part) in inner:
            continue
        if not (names := syntax.dotted(part)):
            continue
        root, *path = names
        value = namespace.get(root)
        if isinstance(value, ModuleType):
            yield ".".join([value.__name__, *path]), ""
        elif root in imports:
            yield ".".join([imports[root], *path]), ""
        elif root in namespace:
            yield "", root
        elif hasattr(builtins, root):
            yield f"builtins.{root}", ""


def _of_path(path: str) -> Origin:
    """The origin of the value of a dotted path."""
    path = re.sub(r"^(posixpath|ntpath)\b", "os.path", path)
    while path and path not in _ORIGINS:
        if path == "builtins":
            return Origin.INSIDE
        path, _, last = path.rpartition(".")
        if not path and last:
            return Origin.MACHINE
    return _ORIGINS.get(path, Origin.INSIDE)


def texts(value: Any) -> Iterator[str]:
    """The texts in a plain value: strings, bytes, and numbers that are the value of an environment variable."""
    if type(value) is str:
        yield value
    elif type(value) is bytes:
        yield value.decode("utf-8", "replace")
    elif type(value) in (int, float) and _variable(str(value)):
        yield str(value)
    elif type(value) in (list, tuple, set, frozenset, dict):
        for item in value:
            yield from texts(item)
        for item in value.values() if type(value) is dict else ():
            yield from texts(item)


def in_program(text: str) -> bool:
    """Whether ``text`` is a string in the source of the running script, or part of its command-line arguments."""
    if len(text) < 2:
        return True
    script = vars(sys.modules["__main__"])
    try:
        tree = modules.script(script)[0]
    except CannotEmbed:
        return False
    constants = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return any(c == text for c in constants if type(c) is str) or any(text in given for given in sys.argv[1:])


def expression_for(value: Any) -> Any:
    """The expression that reads ``value`` from the machine, None if it is no value of this machine."""
    if type(value) not in (str, int, float):
        return None
    if name := _variable(str(value)):
        read = _call("os", "getenv", name)
        return read if type(value) is str else _call("builtins", type(value).__name__, read)
    if type(value) is not str:
        return None
    home = _home()
    if home and (value == home or value.startswith(home + os.sep)):
        return _call("os.path", "expanduser", "~" + value[len(home) :])
    if len(value) >= _SHORTEST and not in_program(value):
        if value == _user():
            return _call("getpass", "getuser")
        if value == socket.gethostname():
            return _call("socket", "gethostname")
    return None


def check(value: str | bytes) -> None:
    """Raise `CannotEmbed` if ``value`` contains something private. The message does not repeat it."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if in_program(text):
        return
    for name, held in _variables():
        if held in text and not held.startswith(os.sep):
            raise CannotEmbed(f"it holds the value of the environment variable {name}")
    home = _home()
    if home and re.search(rf"{re.escape(home)}(?!\w)", text):
        raise CannotEmbed("it holds the path of the home directory")


def check_source(text: str) -> None:
    """Raise `CannotEmbed` if the source ``text`` contains the value of a secret variable."""
    for name, held in _variables():
        if _SECRET.search(name) and held in text:
            raise CannotEmbed(f"its source holds the value of the environment variable {name}; read it from os.environ")


def _call(module: str, path: str, *args: Any) -> dict[str, Any]:
    return {"call": {"func": {"import": [module, path]}, "args": list(args), "kwargs": {}}}


def _variables() -> Iterator[tuple[str, str]]:
    for name, value in sorted(os.environ.items()):
        if len(value) >= _SHORTEST and not _OPEN.match(name):
            yield name, value


def _variable(text: str) -> str:
    """Return the name of the environment variable whose value is ``text``, or an empty text."""
    return next((name for name, value in _variables() if value == text), "") if len(text) >= _SHORTEST else ""


def _home() -> str:
    home = os.path.expanduser("~").rstrip(os.sep)
    return home if home.startswith(os.sep) else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""
