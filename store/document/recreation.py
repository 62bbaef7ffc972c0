"""The form in which a document describes a backend and custom operators: `check_backend`, `check_import`.

All of it is checked when a document is read, in pure Python: data in another form is never printed, listed or
loaded. `backends.provenance` gives the forms their meaning: `backends.provenance.spec` to a backend,
`backends.provenance.expression` to an expression, `backends.provenance.libraries` to an import. Each function
raises `ValueError` with a sentence.
"""

from __future__ import annotations

import ast
import keyword
import math
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from ..parsing import parse

#: The tags of expressions for sequences.
SEQUENCES = ("tuple", "set", "frozenset")
#: An operator with or without its overload, as an expression and an import name it.
_OP = re.compile(r"^[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$", re.ASCII)
_FLOATS = ("inf", "-inf", "nan")
_MAX_DEPTH = 40
#: What an expression may use of the standard library, by module: names that run, read and change nothing, and the few
#: that stand for something of this machine (`backends.provenance.private`).
_STANDARD = {
    "argparse": "Namespace",
    "builtins": (
        "abs all any bool bytes complex dict divmod enumerate filter float frozenset int isinstance len list "
        "map max min object pow print range repr reversed round set slice sorted str sum tuple type zip "
        "Ellipsis NotImplemented"
    ),
    "collections": "ChainMap Counter OrderedDict UserDict UserList defaultdict deque",
    "copy": "copy deepcopy",
    "datetime": "date datetime time timedelta timezone timezone.utc",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "functools": "cmp_to_key partial partialmethod reduce wraps",
    "getpass": "getuser",
    "itertools": "accumulate chain combinations count cycle permutations product repeat starmap",
    "math": (
        "acos asin atan atan2 ceil comb copysign cos cosh degrees e erf exp expm1 fabs floor fmod fsum gamma "
        "gcd hypot inf isclose isfinite isinf isnan lcm ldexp log log10 log1p log2 modf nan pi pow prod "
        "radians sin sinh sqrt tan tanh tau trunc"
    ),
    "os": "getenv",
    "os.path": "expanduser",
    "pathlib": "Path PosixPath PurePath PurePosixPath PureWindowsPath",
    "posixpath": "expanduser",
    "random": "Random",
    "socket": "gethostname",
    "time": "monotonic perf_counter sleep time",
    "types": "MappingProxyType SimpleNamespace",
    "uuid": "UUID",
}
#: Modules of the standard library that an expression may name as a whole.
_HARMLESS = frozenset({"math", "operator", "itertools", "functools", "collections", "fractions", "decimal"})
#: An attribute of these names leads from a module that was agreed to, to one that was not.
LEADS_OUT = frozenset({
    "builtins", "code", "codecs", "ctypes", "gc", "importlib", "inspect", "marshal", "multiprocessing",
    "os", "pickle", "pkgutil", "posix", "pty", "runpy", "shutil", "signal", "site", "subprocess", "sys",
    "sysconfig", "tempfile", "threading", "webbrowser", "zipimport",
})  # fmt: skip
#: The values of environment variables that a document may set: numbers and words, never a path.
PLAIN_VALUE = re.compile(r"-?[A-Za-z0-9][A-Za-z0-9_.,:=+-]{0,39}")
#: Variables that say where a process finds programs and libraries, which a document never sets.
LOADS_CODE = re.compile(r"(?:LD_|DYLD_|PYTHON|GCONV|BASH|CC|CXX|PATH|HOME|SHELL|TMP)")
#: What source may not have: Python reads on after a line that no person sees the end of.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_KINDS = frozenset({"module", "library", "source", "processes"})
#: The most processes of a group.
_MOST_PROCESSES = 1 << 20


def is_dotted(name: str) -> bool:
    """Whether ``name`` is a dotted path of ASCII identifiers. Nothing else is imported or printed as a name."""
    return bool(name) and all(p.isidentifier() and p.isascii() and not keyword.iskeyword(p) for p in name.split("."))


def check_expression(e: Any, depth: int = 0) -> None:
    """Raise `ValueError` unless ``e`` is an expression (`backends.provenance.expression`)."""
    if depth > _MAX_DEPTH:
        raise ValueError("an expression is nested too deeply")
    if e is None or type(e) in (bool, int, str) or (type(e) is float and math.isfinite(e)):
        return
    if type(e) is list:
        for item in e:
            check_expression(item, depth + 1)
        return
    if type(e) is not dict or len(e) != 1:
        raise ValueError(f"not an expression: {e!r:.80}")
    ((tag, content),) = e.items()
    if not _well_formed(tag, content):
        raise ValueError(f"malformed {tag!r:.20} expression: {content!r:.80}")
    if tag in ("import", "module", "get"):
        module, path = content if tag == "import" else (content, "") if tag == "module" else ("", content[1])
        _check_name(module, path)
    for part in parts(tag, content):
        check_expression(part, depth + 1)


def _well_formed(tag: str, content: Any) -> bool:
    texts = type(content) is list and all(type(c) is str for c in content)
    if tag == "float":
        return content in _FLOATS
    if tag == "bytes":
        return type(content) is str and re.fullmatch(r"([0-9a-f]{2})*", content) is not None
    if tag in SEQUENCES:
        return type(content) is list
    if tag == "dict":
        return type(content) is list and all(type(p) is list and len(p) == 2 for p in content)
    if tag == "import":
        return texts and len(content) == 2 and is_dotted(content[0]) and is_dotted(content[1])
    if tag == "op":
        return type(content) is str and _OP.match(content) is not None
    if tag in ("module", "embedded"):
        return type(content) is str and is_dotted(content)
    if tag == "get":
        return type(content) is list and len(content) == 2 and type(content[1]) is str and is_dotted(content[1])
    if tag == "call":
        return (
            type(content) is dict
            and set(content) == {"func", "args", "kwargs"}
            and type(content["args"]) is list
            and type(content["kwargs"]) is dict
            and all(type(k) is str and is_dotted(k) and "." not in k for k in content["kwargs"])
        )
    return False


def _check_name(module: str, path: str) -> None:
    """Raise `ValueError` for a name that runs code of its caller's choice, or leads to a module with such names."""
    top, names = module.partition(".")[0], path.split(".")
    standard = top in sys.stdlib_module_names
    if standard and path:
        operator = module in ("operator", "_operator") and path not in ("attrgetter", "itemgetter", "methodcaller")
        allowed = operator or path in _STANDARD.get(module, "").split()
    else:
        inner = [*module.split(".")[1:], *names]
        walks = any(name in LEADS_OUT for name in inner) or any(
            name.startswith("__") and name != "__call__" for name in names
        )
        allowed = module in _HARMLESS if standard else not walks
    if not allowed:
        raise ValueError(f"an expression uses {'.'.join(filter(None, (module, path)))!r:.80}, which no capture needs")


def parts(tag: str, content: Any) -> list[Any]:
    """The expressions that are the direct parts of a tagged one."""
    if tag in SEQUENCES:
        return list(content)
    if tag == "dict":
        return [part for pair in content for part in pair]
    if tag == "get":
        return [content[0]]
    if tag == "call":
        return [content["func"], *content["args"], *content["kwargs"].values()]
    return []


def check_backend(doc: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless the fields of a backend, whose plain types are right, can be read."""
    check_expression(doc.get("target"))
    check_expression(doc.get("options"))
    module, entry = doc.get("module", ""), doc.get("entry_point", "")
    if module and not is_dotted(module):
        raise ValueError(f"not a module: {module!r:.80}")
    if entry and not (len(names := entry.split(":")) <= 2 and all(map(is_dotted, names))):
        raise ValueError(f"not a module: {entry!r:.80}")
    options = doc.get("options")
    if options is not None and (type(options) is not dict or set(options) != {"dict"}):
        raise ValueError("backend.options is not a dict")
    if (source := doc.get("source")) is not None:
        _check_embedded(source)
    if (copied := doc.get("copied")) is not None:
        if type(copied) is not dict or set(copied) - {"how", "target", "options", "source"}:
            raise ValueError("backend.copied is no object with how, target, options and source")
        if type(copied.get("how", "")) is not str:
            raise ValueError("backend.copied.how is not a string")
        check_backend({key: value for key, value in copied.items() if key != "how"})
    check_search_path(doc)
    named = (*doc.get("variables", ()), *doc.get("required", ()), *doc.get("environment", ()))
    if odd := [name for name in named if not (type(name) is str and name.isidentifier() and name.isascii())]:
        raise ValueError(f"not the name of an environment variable: {odd[0]!r:.80}")
    for name, value in dict(doc.get("environment", {})).items():
        if LOADS_CODE.match(name) or type(value) is not str or not PLAIN_VALUE.fullmatch(value):
            raise ValueError(f"not a setting in an environment variable: {name} = {value!r:.80}")


def _check_embedded(source: Any) -> None:
    if type(source) is not dict or set(source) - {"imports", "text", "file"}:
        raise ValueError("backend.source is no object with imports, text and file")
    check_source(source.get("imports", []), source.get("text", ""), source.get("file", ""))


def check_import(item: Any) -> None:
    """Raise `ValueError` unless ``item`` is an import (`backends.provenance.libraries`)."""
    if type(item) is not dict or len(kinds := _KINDS & set(item)) != 1:
        raise ValueError("an import is one of module, library, source and processes")
    if set(item) - {*kinds, "ops", "search_path", "imports", "file", "class"}:
        raise ValueError("an import has an unknown field")
    if "class" in item and not (type(item["class"]) is str and is_dotted(item["class"])):
        raise ValueError(f"not the name of a class: {item['class']!r:.80}")
    if "class" in item and "module" in item and not str(item["class"]).startswith(f"{item['module']}."):
        raise ValueError(f"{item['class']!r:.80} is no class of the module {item['module']!r:.80}")
    if "class" in item and not {"module", "source"} & set(item):
        raise ValueError("a class is one of a module or a source")
    if "processes" in item:
        check_processes(item["processes"])
    for key in ("module", "library", "source", "file"):
        if type(item.get(key, "")) is not str:
            raise ValueError(f"import.{key} is not a string")
    for key in ("ops", "search_path", "imports"):
        if type(item.get(key, [])) is not list or any(type(v) is not str for v in item.get(key, [])):
            raise ValueError(f"import.{key} is not a list of strings")
    check_search_path(item)
    if "module" in item and not is_dotted(item["module"]):
        raise ValueError(f"not a module: {item['module']!r:.80}")
    if os.path.basename(item.get("library", "")) != item.get("library", ""):
        raise ValueError("import.library is a file name, not a path")
    if any(not _OP.match(op) for op in item.get("ops", [])):
        raise ValueError("import.ops holds something that is no operator")
    if "source" in item:
        check_source(item.get("imports", []), item["source"], item.get("file", ""))


def check_search_path(item: Any) -> None:
    """Raise `ValueError` if a directory of a search path has a character that no person sees."""
    if odd := [path for path in item.get("search_path", []) if type(path) is str and not path.isprintable()]:
        raise ValueError(f"a directory with a character that is not printed: {odd[0]!r:.80}")


def check_processes(doc: Any) -> None:
    """Raise `ValueError` unless ``doc`` is the size of a group of processes and the rank of this one."""
    if type(doc) is not dict or set(doc) != {"size", "rank"} or any(type(v) is not int for v in doc.values()):
        raise ValueError("import.processes is not a size and a rank")
    if not 0 <= doc["rank"] < doc["size"] <= _MOST_PROCESSES:
        raise ValueError("import.processes has a rank outside its size")


def check_source(imports: Any, text: Any, file: Any) -> None:
    """Raise `ValueError` unless ``imports`` are lines that import and do nothing else, and the source can be parsed."""
    if type(text) is not str or type(file) is not str:
        raise ValueError("source and its file are no strings")
    if type(imports) not in (list, tuple) or any(type(line) is not str for line in imports):
        raise ValueError("the import lines of a source are no list of strings")
    for line in imports:
        statements = _parsed(line)
        if "\n" in line or len(statements) != 1 or not isinstance(statements[0], ast.Import | ast.ImportFrom):
            raise ValueError(f"not an import line: {line!r:.80}")
    if CONTROL.search(text):
        raise ValueError("source with a control character")
    _parsed("\n".join([*imports, text]))


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as exc:
        raise ValueError(f"source that is not Python ({type(exc).__name__}): {text!r:.60}") from None
