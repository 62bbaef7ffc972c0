"""Checks of files for other people: scripts, notebooks and Markdown from any capture must contain nothing harmful."""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Iterator

#: Modules that a script imports besides the module of its backend.
MODULES = {
    "torch", "math", "operator", "signal", "pathlib", "os", "sys", "functools", "pytest", "subprocess", "tempfile",
    "venv", "safetensors", "re", "resource",
}  # fmt: skip
BUILTINS = {"isinstance", "print", "sum", "zip", "range", "slice", "complex", "float", "int", "bool", "getattr", "min",
            "max", "abs", "round", "pow", "divmod", "frozenset", "set", "len", "str", "tuple", "list",
            "enumerate"}  # fmt: skip
#: Nothing below these of torch: they read files, run code, or compile it.
FORBIDDEN = {
    "load",
    "save",
    "hub",
    "serialization",
    "package",
    "cpp_extension",
    "jit",
    "_C",
    "multiprocessing",
    "utils",
}
ALLOWED_PRIVATE = {"torch._dynamo.mark_dynamic", "torch._neg_view"}
#: What only the drivers of other processes call: the tests of crashes, and bisection.
DRIVERS = {"subprocess.run", "re.sub", "tempfile.TemporaryDirectory", "venv.create", "os.path.join", "sys.exit",
           "functools.cache"}  # fmt: skip


def faults(text: str, *, modules: frozenset[str] = frozenset(), driver: bool = False) -> Iterator[str]:
    """Yield the faults of a script."""
    if any(not (" " <= c <= "~" or c == "\n") for c in text):
        yield "a character that is not printable ASCII"
    tree = ast.parse(text)
    local = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    bound = local | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {a.arg for n in ast.walk(tree) if isinstance(n, ast.arguments) for a in n.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        yield from (f"imports {n}" for n in names if n.partition(".")[0] not in MODULES and n not in modules)
        if isinstance(node, ast.Attribute) and node.attr.startswith("__"):
            yield f"reads {node.attr}"
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
            known = {*MODULES, *BUILTINS, *modules, "__file__", "__name__", "inf", "nan", "load_file"}
            if node.id not in known and not (hasattr(builtins, node.id) and node.id.endswith(("Error", "Exception"))):
                yield f"reads the name {node.id}"
        if isinstance(node, ast.Call):
            yield from _call(node, driver)


def _call(node: ast.Call, driver: bool) -> Iterator[str]:
    name = dotted(node.func)
    root, _, rest = name.partition(".")
    if root in ("torch", "os", "sys", "subprocess", "pathlib", "re") and rest:
        if name in DRIVERS and driver:
            return
        if root != "torch" and name != "pathlib.Path":
            yield f"calls {name}"
        if FORBIDDEN & set(rest.split(".")) and not name.startswith("torch.ops."):
            yield f"calls {name}"
    if name == "getattr" and not (isinstance(node.args[1], ast.Constant) and "__" not in str(node.args[1].value)):
        yield "calls getattr with something else than a plain name"


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


#: Lines of the template of an issue that fold a section.
FOLDING = (
    "<details><summary>Under other backends</summary>", "<details><summary>What the compiler made of it</summary>",
    "</details>",
)  # fmt: skip


def markdown_faults(text: str) -> Iterator[str]:
    """Yield parts that the author of a report did not write and a reader would see: mark-up, links, mentions."""
    if any(not (" " <= c <= "~" or c == "\n") for c in text):
        yield "a character that is not printable ASCII"
    fence = ""
    first, _, rest = text.partition("\n")
    body = text
    if first.startswith("<!--"):
        body = rest
        if first.index("-->") != len(first) - 3 or "--" in first[4:-3]:
            yield "a comment that ends early"
    for line in body.splitlines():
        opened = re.match(r"(`{3,})", line)
        if fence:
            fence = "" if opened and len(opened[1]) >= len(fence) and not line.strip("`") else fence
            continue
        if opened:
            fence = opened[1]
            continue
        if line in FOLDING:
            continue
        plain = re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
        if found := re.search(r"(?<!\\)(<|!\[|\]\(|@\w|(?<![\w/&])#\d)", plain):
            yield f"mark-up {found[0]!r} in {line[:80]!r}"
    if fence:
        yield "a block of code that does not end"


def notebook_faults(text: str, *, modules: frozenset[str] = frozenset()) -> Iterator[str]:
    doc = json.loads(text)
    if (doc["nbformat"], doc["nbformat_minor"]) != (4, 5) or set(doc) != {
        "cells",
        "metadata",
        "nbformat",
        "nbformat_minor",
    }:
        yield "no notebook of format 4.5"
    code = []
    for cell in doc["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            code.append(source)
        else:
            yield from markdown_faults(source)
    yield from faults("\n".join(code), modules=modules)
