"""Custom operators: which module, shared library or source registers ``torch.ops.NS.OP``, and how to load it.

An *import* is a JSON object: ``{"module": name}``, ``{"library": file name}``, ``{"source": text, "imports": [lines]}``
or ``{"processes": ...}`` (`backends.running.collectives`). ``"ops"`` has the operators that it registers: `needed`
drops an import if the graph calls none of them. ``"search_path"`` has directories of this machine, which are never
printed.

This module uses private parts of torch to find the places of registration: ``torch._library`` (``custom_ops.OPDEFS``,
``simple_registry``) and ``torch._C._dispatch_dump``.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from ...store.document.case import Case, operators
from ...store.document.recreation import check_import, is_dotted
from ..running import collectives
from . import modules, syntax
from .embedded_source import EmbeddedSource, Embedder
from .modules import CannotEmbed
from .origin import express
from .spec import CannotLoad, extend_path, run, runs, searches

Json = dict[str, Any]

#: Namespaces that ``import torch`` or compiling with it registers.
BUILTIN = frozenset(
    {
        "aten", "prim", "prims", "higher_order", "_c10d_functional", "_c10d_functional_autograd", "_dtensor",
        "_native", "_quantized", "c10d", "c10d_functional", "debug_mode_ops", "debugprims", "export",
        "flex_lib", "fsdp", "inductor", "inductor_prims", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "onnx",
        "onnx_symbolic", "profiler", "quantization", "quantized", "quantized_decomposed", "rngprims", "sparse",
        "static_runtime", "streams", "symm_mem",
    }
)  # fmt: skip
#: Built-in namespaces that a module of torch registers, which not every backend imports.
_LAZY = {"quantized_decomposed": "torch.ao.quantization.fx._decomposed"}
_OP = re.compile(r"^([A-Za-z_]\w*)::([A-Za-z_]\w*)(\.\w+)?$", re.ASCII)
_PLACE = re.compile(r"registered at (.+?):\d+(?= ::|$)", re.MULTILINE)
_REGISTERS = re.compile(r"^(impl|define|fallback|custom_op|triton_op|register_\w+|impl_abstract|Library)$")
_LARGEST_LIBRARY = 512 << 20


def imports_for(ops: Iterable[str]) -> tuple[list[Json], list[str]]:
    """The imports that register ``ops`` (``"ns::name"`` or ``"ns::name.overload"``), and problems as sentences.

    There is one import for each place of registration, in the order of the operators that need it.
    """
    found: dict[str, Json] = {}
    problems: list[str] = []
    script: list[str] = []
    for op in dict.fromkeys(_qualified(op) for op in ops):
        namespace = op.partition("::")[0]
        if namespace in collectives.NAMESPACES:
            found.setdefault("", collectives.described())["ops"].append(op)
        elif namespace in BUILTIN:
            if lazy := _LAZY.get(namespace):
                found.setdefault(lazy, {"module": lazy, "ops": []})["ops"].append(op)
        elif "__main__" in (places := _places(op)):
            script.append(op)
        elif places:
            for place in places:
                found.setdefault(place, _import(place))["ops"].append(op)
        else:
            problems.append(f"operator {op}: no module or library that registers it was found")
    if script:
        try:
            found["__main__"] = {**_embedded(script), "ops": script}
        except CannotEmbed as exc:
            problems.append(f"operator {script[0]} is registered by the running script: {exc}")
    return list(found.values()), problems


def needed(imports: Iterable[Mapping[str, Any]], ops: Iterable[str], classes: Collection[str] = ()) -> list[Json]:
    """Return those ``imports`` that register one of ``ops``, have one of the ``classes`` of tensors, or do not say what
    they register."""
    wanted = {_qualified(op) for op in ops}
    return [dict(i) for i in imports if "ops" not in i or wanted & set(i["ops"]) or i.get("class") in classes]


def needed_by(case: Case) -> tuple[Json, ...]:
    """Return the imports of ``case`` that its graph or its tensors need."""
    classes = {spec.subclass for spec in case.tensors if spec.subclass}
    return tuple(needed(case.imports, operators(case.graph), classes))


def check(imports: Any) -> None:
    """Raise `ValueError` unless ``imports`` is a list of imports as `imports_for` makes them."""
    if type(imports) not in (list, tuple):
        raise ValueError("imports is not a list")
    for item in imports:
        check_import(item)


def executes(imports: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the actions of `load`, in lines for a person to agree to. Raises `ValueError` like `check`."""
    out: list[str] = []
    imports = list(imports)
    check(imports)
    for item in imports:
        out += searches(item.get("search_path", ()))
        if "module" in item:
            out.append(f"imports {item['module']}")
        elif "library" in item:
            out.append(f"loads the shared library {item['library']}")
        elif "processes" in item:
            size, rank = item["processes"]["size"], item["processes"]["rank"]
            out.append(f"starts torch's fake process group as rank {rank} of {size}")
        else:
            what = "that define a class of tensors" if "class" in item else "that register operators"
            out += runs(_source(item), what)
    return out


def load(imports: Iterable[Mapping[str, Any]]) -> None:
    """Do the ``imports``. Raises `CannotLoad` if one fails or does not register its operators."""
    import torch

    from . import tensor_classes  # needs torch, and commands that only read do not import it

    imports = list(imports)
    check(imports)
    for item in imports:
        extend_path(item.get("search_path", ()))
        try:
            if "module" in item:
                importlib.import_module(item["module"])
            elif "library" in item:
                torch.ops.load_library(_locate(item["library"], item.get("search_path", ())))
            elif "processes" in item:
                collectives.start(item["processes"])
            elif not all(_is_registered(op) for op in item.get("ops", ())) or "ops" not in item:
                run(_source(item))
            if "class" in item:
                tensor_classes.register(item, run(_source(item)) if "source" in item else {})
        except Exception as exc:
            what = item.get("module") or item.get("library") or "embedded source"
            raise CannotLoad(f"{what}: {type(exc).__name__}: {exc}") from exc
        if missing := [op for op in item.get("ops", ()) if not _is_registered(op)]:
            what = item.get("module") or item.get("library") or "the embedded source"
            raise CannotLoad(f"{what} does not register the operator {missing[0]}")


def to_source(imports: Iterable[Mapping[str, Any]], of_backend: EmbeddedSource | None = None) -> list[str]:
    """The lines of a script that do what `load` does, import lines first. Raises `ValueError` like `check`.

    The source ``of_backend`` is in the script already.
    """
    lines: dict[str, None] = {}
    setup: list[str] = []
    imports = list(imports)
    check(imports)
    for item in imports:
        spaces = ", ".join(dict.fromkeys(op.partition("::")[0] for op in item.get("ops", ())))
        comment = f"  # registers torch.ops.{spaces}" if spaces else ""
        if "module" in item:
            lines[f"import {item['module']}{comment}"] = None
        elif "library" in item:
            lines |= dict.fromkeys(["import os", "import sys", "import torch"])
            setup.append(f"library = {item['library']!a}  # must lie beside this script or on PYTHONPATH")
            setup.append("path = next(p for d in sys.path if os.path.exists(p := os.path.join(d, library)))")
            setup.append(f"torch.ops.load_library(path){comment}")
        elif "processes" in item:
            needed_first, call = collectives.to_source(item["processes"])
            lines |= dict.fromkeys(needed_first)
            setup.append(call)
        else:
            source = _source(item)
            if of_backend is not None and source.source == of_backend.source:
                continue
            lines |= dict.fromkeys(source.imports)
            setup += ["", *source.text.split("\n"), ""] if setup else source.text.split("\n")
    return [*lines, *setup]


def _qualified(op: str) -> str:
    match = _OP.match(op)
    if match is None:
        raise ValueError(f"not an operator: {op!r:.80}")
    return f"{match[1]}::{match[2]}"


def _is_registered(op: str) -> bool:
    import torch

    return any(n == op or n.startswith(op + ".") for n in torch._C._dispatch_get_all_op_names())


def _source(item: Mapping[str, Any]) -> EmbeddedSource:
    return EmbeddedSource(tuple(item.get("imports", ())), item["source"], item.get("file", ""))


def _locate(library: str, directories: Iterable[str]) -> str:
    for directory in (*map(os.path.expanduser, directories), *sys.path):
        path = os.path.join(directory, library)
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"{library} is on none of the directories searched")


def _import(place: str) -> Json:
    """The import for a module name or the path of a shared library."""
    if os.sep in place:
        return {"library": os.path.basename(place), "ops": [], "search_path": [os.path.dirname(place)]}
    path = list(modules.search_path([place]))
    return {"module": place, "ops": [], **({"search_path": path} if path else {})}


def _places(op: str) -> list[str]:
    """Names of the modules, or paths of the libraries, that register ``op`` or one of its kernels; ``__main__`` too."""
    python = [module for file in _source_files(op) if (module := _module_of_file(file)) is not None]
    # torch does not remember who registered a kernel by name (torch.library.impl("ns::op", ...)): search the sources.
    names = list(dict.fromkeys([*python, *_mentioning(op)]))
    if names:
        return ["__main__"] if "__main__" in names else names
    return list(_shared_libraries(op))


def _source_files(op: str) -> Iterator[str]:
    """Files whose code defined ``op``, one of its kernels or its fake kernel, as far as torch remembers them."""
    import torch
    from torch._library import simple_registry
    from torch._library.custom_ops import OPDEFS

    if (definition := OPDEFS.get(op)) is not None:
        functions = [definition._init_fn, *definition._backend_fns.values(), definition._abstract_fn]
        functions += [definition._backward_fn, definition._setup_context_fn, definition._vmap_fn]
        yield from (code.co_filename for fn in functions if (code := getattr(fn, "__code__", None)) is not None)
    yield from _PLACE.findall(torch._C._dispatch_dump(op))
    if (kernel := simple_registry.singleton.find(op).fake_impl.kernel) is not None:
        yield str(kernel.source).rpartition(":")[0]


def _mentioning(op: str) -> Iterator[str]:
    """Loaded modules outside torch that register ``op`` or a kernel of it by its name."""
    for name in modules.mentioning(op):
        tree = modules.tree_of(name)
        parts = [p for s in syntax.statements(tree) for p in _acting_part(s)] if tree is not None else []
        if any(_registers(n, {op}, set()) for part in parts for n in ast.walk(part)):
            yield name


def _module_of_file(file: str) -> str | None:
    """The loaded module with this source file: a name, ``__main__`` for the running script, None for torch's own."""
    if not file.endswith(".py") or not os.path.exists(file):
        return None
    path = os.path.abspath(file)
    hits = [
        name
        for name, module in list(sys.modules.items())
        if isinstance(getattr(module, "__file__", None), str) and os.path.abspath(str(module.__file__)) == path
    ]
    hits = [h for h in hits if h != "__mp_main__" and h.partition(".")[0] != "torch"]
    importable = [h for h in hits if h != "__main__"]
    return min(importable or hits, default=None)


def _shared_libraries(op: str) -> Iterator[str]:
    """Shared libraries that contain the names of ``op``: the module of a package outside of torch, or the path."""
    import torch

    loaded = [str(p) for p in torch.ops.loaded_libraries]
    loaded += [str(m.__file__) for m in list(sys.modules.values()) if _is_extension(m)]
    namespace, _, name = op.partition("::")
    for path in dict.fromkeys(loaded):
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST_LIBRARY:
            continue
        with open(path, "rb") as file:
            content = file.read()
        # These are C strings: `TORCH_LIBRARY` has the namespace, `def` and `impl` have the name or the whole schema.
        if all(re.search(rb"(?<!\w)%s[\0(]" % text.encode(), content) for text in (namespace, name)):
            yield _package_of(path) or os.path.abspath(path)


def _is_extension(module: object) -> bool:
    file, name = getattr(module, "__file__", None), str(getattr(module, "__name__", ""))
    return isinstance(file, str) and file.endswith((".so", ".pyd")) and name.partition(".")[0] not in ("torch", "numpy")


def _package_of(path: str) -> str | None:
    """The loaded module of a shared library: the library itself, or the package in whose directory it is; else None."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == path and is_dotted(name):
            return name
    for name, module in list(sys.modules.items()):
        paths = getattr(module, "__path__", None) if "." not in name and isinstance(module, ModuleType) else None
        for directory in paths or []:
            if path.startswith(os.path.abspath(directory) + os.sep):
                return name
    return None


def _embedded(ops: list[str]) -> Json:
    """The statements of the running script that register ``ops``, embedded with what they need."""
    namespace = vars(sys.modules["__main__"])
    chosen = _registering_statements(ops, namespace)
    if not chosen:
        raise CannotEmbed("the statements that register it were not found at top level")
    embedder = Embedder(express)
    names = [n for node in chosen for n in syntax.names_bound_by(node)]
    for node in chosen:
        embedder.statement(node, namespace, names)
    embedded = embedder.embedded()
    if embedded is None:
        raise CannotEmbed("its source is empty")
    return {"source": embedded.text, "imports": list(embedded.imports), "file": embedded.file}


def _registering_statements(ops: list[str], namespace: Mapping[str, Any]) -> list[ast.stmt]:
    """Top-level statements that define these operators or their kernels, in order.

    These name an operator, open a `Library` of its namespace, or register through a name that another one of them binds
    (``@op.register_fake``, ``lib.impl(...)``).
    """
    texts = {*ops, *(op.partition("::")[0] for op in ops)}
    statements = modules.statements(namespace)
    chosen: set[int] = set()
    names: set[str] = set()
    while True:
        before = len(chosen)
        for i, node in enumerate(statements):
            if i in chosen or not isinstance(node, (*syntax.DEFINITIONS, ast.Assign, ast.Expr)):
                continue
            if any(_registers(n, texts, names) for part in _acting_part(node) for n in ast.walk(part)):
                chosen.add(i)
                bound = set(syntax.names_bound_by(node)) - {"_"}
                names |= {n for n in bound if type(namespace.get(n)).__name__ in ("CustomOpDef", "Library")}
        if len(chosen) == before:
            return [statements[i] for i in sorted(chosen)]


def _registers(node: ast.AST, texts: set[str], names: set[str]) -> bool:
    """Whether an expression registers one of these operators, by its text or through an object called by a name."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
        return _REGISTERS.match(node.attr) is not None
    if not isinstance(node, ast.Call):
        return False
    func = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return _REGISTERS.match(func) is not None and any(
        (isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value.partition(".")[0] in texts)
        or (isinstance(a, ast.Name) and a.id in names)
        for a in [*node.args, *(k.value for k in node.keywords)]
    )


def _acting_part(node: ast.stmt) -> list[ast.expr]:
    """The expressions a statement evaluates at once and that may register: decorators, or a call."""
    if isinstance(node, syntax.DEFINITIONS):
        return list(node.decorator_list)
    value = getattr(node, "value", None)
    return [value] if isinstance(value, ast.Call) else []
