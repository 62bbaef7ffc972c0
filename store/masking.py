"""Masking: removes from a message all that changes as a graph shrinks.

`BEFORE_ADAPTERS` and `AFTER_ADAPTERS` hold the rules by name, in the order in which they are applied; the rules of
installed adapters (`fxminify.store.signature_rules`) come between them. ``docs/signatures.md`` lists them with an
example each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from .signature_rules import installed

#: The most characters of a text; longer ones are cut first.
_LONGEST = 20_000
_WORD = re.compile(r"\b[A-Za-z_]\w*+")
#: The text before the name of a node.
_NAMING = re.compile(r"(?i)\b(node|name)\b['\"]?\s?[=:]?\s?['\"`<]?$")
#: Names that compilers number: a buffer, a temporary, an index.
_NUMBERED = (
    r"buf|tmp|op|arg|primals|tangents|getitem|val|var|node|ptr|input|output|in|out|loc|"
    r"kernel|seed|result|graph|fn|func|main_graph|eval_with_key"
)


def _nested(levels: int) -> str:
    """A list in brackets, which may contain lists of ``levels`` levels."""
    inside = f"|{_nested(levels - 1)}" if levels else ""
    return rf"[(\[{{](?:[^()\[\]{{}}]{inside})*+[)\]}}]"


_NESTED = _nested(5)


Replacement = str | Callable[[re.Match[str]], str]


@dataclass(frozen=True, slots=True)
class MaskingRule:
    """Each match of ``pattern`` becomes ``replacement``, or what that makes of it.

    ``before`` and ``after`` are an example. ``<numbered>`` in a pattern stands for the names that compilers number.
    """

    name: str
    pattern: str
    replacement: Replacement
    before: str
    after: str


def _in_order(found: re.Match[str]) -> str:
    """A list of names with its items in order, each once."""
    return found[1] + ", ".join(sorted(dict.fromkeys(re.split(r",\s*", found[2].strip(" ,"))))) + found[3]


def _as_list(found: re.Match[str]) -> str:
    """Names without brackets as a list of names."""
    return f"[{', '.join(sorted(dict.fromkeys(found[1].split(', '))))}]{found[2]}"


def _base(found: re.Match[str]) -> str:
    """A path, but for the name of a source file of a compiler: that is where an error was raised."""
    name = found[0].rpartition("/")[2].partition(":")[0]
    return f"<path>/{name}" if _COMPILER_SOURCE.fullmatch(name) and not _TEMPORARY.search(found[0]) else "<path>"


_COMPILER_SOURCE = re.compile(r"[A-Za-z_][\w-]*\.(?:cc|cpp|cxx|cu|cuh|hpp|hh?|inl|inc)")
_TEMPORARY = re.compile(r"/te?mp[/_]|cache|torchinductor|c[a-z0-9]{40,}|\.main\.cpp")
_SCALAR = (
    r"(?:float|double|bool|char|short|int|long(?: long)?|unsigned(?: \w+)?|u?int(?:8|16|32|64)_t|__half|half|"
    r"(?:at|c10)::(?:Half|BFloat16|complex<\w+>)|__nv_bfloat16|bfloat16)"
)
_DTYPES = r"(?:BFloat16|ComplexDouble|ComplexFloat|ComplexHalf|Double|Float|Half|Long|Short|Bool|Byte|Char|Int)"
#: What stands in ``loc()``: strings, and two levels of parentheses.
_STRING = r"\"(?:[^\"\\\n]|\\.)*+\"|[^()\"\n]"
_LOCATED = rf"(?:{_STRING}|\((?:{_STRING}|\((?:{_STRING})*+\))*+\))*+"

#: No pattern may try a long word again from each of its letters: messages of megabytes exist.
BEFORE_ADAPTERS = (
    MaskingRule("color", r"\x1b\[[\d;]*m", "", "\x1b[31merror", "error"),
    # MLIR's places: in the program, in the text of the intermediate code, in a line of standard input.
    MaskingRule("location", rf"\bloc\({_LOCATED}\)", "<place>", 'at loc("a.py":4:0)', "at <place>"),
    MaskingRule(
        "place-of-error",
        r"(?m)^(?:\"[^\"\n]*+\"|<\w+>|[^\s:\"]*+)(?:\((?:\"[^\"\n]*+\"|[^)\n\"])*+\))?(?:(?::\d+){1,2}|\(\d+\))?:? ?"
        r"(?=(?:fatal )?(?:error|note): )|(?<=error: )(?:unknown|\"[^\"\n]*+\"(?::\d+)+): ",
        "",
        "kernel.mlir:4:10: error: unknown: no",
        "error: no",
    ),
    # torch.fx.Node.format_node: only operator kind and target survive other edits of the node.
    MaskingRule(
        "fx-node",
        r"%?\b[A-Za-z_]\w*+ : (?:\[[^\]\n]{0,500}+\] )*+= (\w+\[target=[^\]]*\])\(args = .*?, kwargs = \{.*?\}\)",
        r"<node> = \1",
        "%a : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})",
        "<node> = call_function[target=torch.relu]",
    ),
    MaskingRule(
        "operand-list",
        r"(?i)\b(users|used by|consumers|producers|args|kwargs|(?:all_)?input_nodes|operands)(['\"]?\s?[=:]?\s?'?)"
        + _NESTED,
        r"\1\2<nodes>",
        "used by [relu, sin]",
        "used by <nodes>",
    ),
    # The operands of a call that the dispatcher refused; their number and whether they are parameters change.
    MaskingRule(
        "operand-types",
        r"(?<=[(\s])(?:Tensor|Parameter)(?:, (?:Tensor|Parameter))*(?=[,)])",
        "Tensor",
        "got (Tensor, Parameter)",
        "got (Tensor)",
    ),
    MaskingRule("address", r"\b0x[0-9a-fA-F]{4,}", "<addr>", "at 0x7f00deadbeef", "at <addr>"),
    MaskingRule(
        "path",
        r"(?:[A-Za-z]:|(?<![\w.~+/-]))(?:[\w.~+-]*+/)+[\w.+@-]+(?::\d+)*",
        _base,
        "in /home/me/train.py:12",
        "in <path>",
    ),
    MaskingRule(
        "temporary-name",
        r"\btmp[a-z0-9_]{8}\b|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b(?:-[0-9a-f]{4,12})*|"
        r"\b(?=[A-Za-z+/_-]*\d)(?=[a-z\d+/_-]*[A-Z])(?=[A-Z\d+/_-]*[a-z])[A-Za-z0-9+/-]{60,}={0,2}",
        "<name>",
        "of tmpab12_x9z and 0f3c9a71",
        "of <name> and <name>",
    ),
    MaskingRule(
        "time",
        r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?",
        "<time>",
        "2026-11-25 20:50:41.120 [E]",
        "<time> [E]",
    ),
    # Classes and functions that C++ makes of one template for each type.
    MaskingRule(
        "template-class",
        rf"(?<![a-z])(CPU|CUDA|HIP|XPU|MPS|Sparse)?{_DTYPES}(Tensor|Type|Storage)\b",
        r"\1<type>\2",
        "no CPUFloatType, FloatTensor",
        "no CPU<type>Type, <type>Tensor",
    ),
    MaskingRule(
        "template-argument",
        rf"<{_SCALAR}(?:\s*,\s*(?:{_SCALAR}|\d+|true|false))*\s*>",
        "<type>",
        "for Vectorized<double, 2>",
        "for Vectorized<type>",
    ),
    MaskingRule(
        "template-function",
        rf"(?<=\bat_){_DTYPES}(?=_)|\b(?:at|c10)::(?:Half|BFloat16)\b",
        "<type>",
        "of at_Half_max",
        "of at_<type>_max",
    ),
    # What the program calls its modules and values, as Dynamo names them, and what else a node reads and makes.
    MaskingRule(
        "program-value",
        r"(?:getattr\()*\b[LG]\['[^'\n]*'\](?:\.\w++|\[[^\]\n]*\]|, '\w+'\))*+",
        "<input>",
        "in L['self'].layers[0].mlp",
        "in <input>",
    ),
    MaskingRule(
        "operand-name",
        r"\b((?:in|out)puts?)(\s?[=:]\s?)([\"'])[^\"'\n]*+\3",
        r"\1\2<name>",
        'node=input: "add"',
        "node=input: <name>",
    ),
    MaskingRule("generated-file", r"\bc[a-z0-9]{49,52}\b", "<generated>", f"module c{'a1' * 25}", "module <generated>"),
)
#: Applied after the rules of adapters, which may contain numbers.
AFTER_ADAPTERS = (
    MaskingRule("ir-value", r"%\w+(?:[:#]\d+)?", "<value>", "operand %12:2 is", "operand <value> is"),
    MaskingRule("source-of-value", r"\blocation=[\w.]*@[\w./]+:\d+", "<place>", "location=f@a.py:3", "<place>"),
    MaskingRule("dynamo-input", r"\b[lL]_\w*_\b", "<input>", "L_self_weight_ is", "<input> is"),
    MaskingRule("mlir-shape", r"(?<=tensor<)(?:[\d?]+x)+", "<shape>x", "tensor<4x?xf32>", "tensor<<shape>xf32>"),
    MaskingRule(
        "index-in-name", r"(?<=[A-Za-z_])\.\d+(?=\.[A-Za-z_]|(?![\w.]))", "", "%fusion.3 of a.0.b", "%fusion of a.b"
    ),
    MaskingRule("name-suffix", r"(?<=[A-Za-z0-9])_\d+(?=_|\b)", "", "relu_3 of", "relu of"),
    MaskingRule("numbered-name", r"\b(<numbered>)\d+\b", r"\1", "buf12 is", "buf is"),
    # A letter and a number: a symbolic size (s77, u0) or an index (x0), but not a dtype (f16, si64).
    MaskingRule(
        "symbol",
        r"\b(?!(?:f|bf|i|u|si|ui)(?:8|16|32|64|128)\b)(?:[a-z]|ks|ps)\d+\b",
        "<n>",
        "s77 of f16",
        "<n> of f16",
    ),
    MaskingRule("shape-by-x", r"\b\d+(?:x\d+)+\b", "<shape>", "a 3x4x5 input", "a <shape> input"),
    MaskingRule("hexadecimal", r"\b0x[0-9a-fA-F]+", "<addr>", "code 0x1f", "code <addr>"),
    MaskingRule(
        "number",
        r"(?<![\w.])-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[LlUuf]*\b(?!\.\d)",
        "<n>",
        "expected 3, got -1.5e3",
        "expected <n>, got <n>",
    ),
    MaskingRule(
        "quantity",
        r"(?<![\w.])(?:-?\d+(?:\.\d+)?|<n>) ?(?:[KMGT]i?B|bytes?|[mun]s|us|s|sec(?:ond)?s?|minutes?)\b",
        "<n> <unit>",
        "took 12.5ms, 20.00 GiB",
        "took <n> <unit>, <n> <unit>",
    ),
    MaskingRule("arithmetic", r"<n>(?: ?[*+] ?<n>)+", "<n>", "<n>*<n> + <n>", "<n>"),
    MaskingRule(
        "shape-in-parentheses",
        r"(?:(?:torch\.)?Size)?\((?:\s*<n>\s*,)+(?:\s*<n>)?\s*\)",
        "<shape>",
        "of (<n>, <n>)",
        "of <shape>",
    ),
    MaskingRule(
        "shape-in-brackets",
        r"(?:(?:torch\.)?Size\()?\[\s*+(?:(?:<n>|\?)(?:\s*,\s*(?:<n>|\?))*+)?\s*+\]\)?",
        "<shape>",
        "torch.Size([<n>, <n>])",
        "<shape>",
    ),
    # Hash order, and one list for all that a graph has of a kind.
    MaskingRule(
        "names",
        r"([\[{])((?:\s*(?:['\"]?[\w.:<>+-]++(?: \w+)?['\"]?|<[^<>\n]*+>|'[^'\n]*+'|\"[^\"\n]*+\"),?){2,}+\s*)([\]}])",
        _in_order,
        "no rule for {'tanh', 'gelu'}",
        "no rule for {'gelu', 'tanh'}",
    ),
    MaskingRule(
        "listed-names",
        r"(?m)(?<=: )((?:\w++(?:::|\.))++\w++(?:, (?:\w++(?:::|\.))++\w++)*+)(\.?)$",
        _as_list,
        "no rule for: aten::tanh, aten::gelu",
        "no rule for: [aten::gelu, aten::tanh]",
    ),
    # A list of alike items, one for each input.
    MaskingRule(
        "repetition",
        r"(?<![\w.<>])([\w.<>]++(?:\([^()]*+\))?+)(?:, \1(?![\w.<>]))+",
        r"\1",
        "float, float, float given",
        "float given",
    ),
    MaskingRule("spaces", r"[ \t]+", " ", "a \t b", "a b"),
)


def with_operations(text: str, nodes: Mapping[str, str], *, plain: bool = False) -> str:
    """``text`` with names of ``nodes`` replaced by what these call: names are the program's, and change with edits.

    Unless ``plain``, a plain word stays where nothing says that it is the name of a node.
    """

    def operation(found: re.Match[str]) -> str:
        word, before = found[0], text[max(0, found.start() - 12) : found.start()]
        named = word in nodes and (plain or "_" in word or word[-1].isdigit() or _NAMING.search(before))
        return str(nodes[word]) if named else word

    text = text[:_LONGEST]
    return _WORD.sub(operation, text) if nodes else text


def mask(text: str) -> str:
    """``text`` after all rules: without what changes as a graph shrinks, at most 1000 characters.

    What tells bugs apart stays: names of operators and dtypes keep their digits (``atan2``, ``log10``, ``int64``).
    """
    text = text[:_LONGEST]
    for pattern, replacement in _masks():
        text = pattern.sub(replacement, text)
    return text[:1000]


def without_places(line: str) -> str:
    """Return a line that reports an error without the place before it, as in ``<stdin>:4:1: error: no``."""
    return _place_of_error().sub("", line)


@cache
def _place_of_error() -> re.Pattern[str]:
    return re.compile(next(rule.pattern for rule in BEFORE_ADAPTERS if rule.name == "place-of-error"))


#: The rules after which a text is still one for a person.
_READABLE = frozenset(
    {"color", "location", "place-of-error", "address", "path", "generated-file", "ir-value", "spaces"}
)


def readable(text: str) -> str:
    """``text`` for a person: its numbers and names are there, but no paths and addresses; at most 1000 characters."""
    text = text[:_LONGEST]
    for rule in (*BEFORE_ADAPTERS, *AFTER_ADAPTERS):
        if rule.name in _READABLE:
            text = re.sub(rule.pattern, rule.replacement, text)
    return text[:1000]


@cache
def _masks() -> tuple[tuple[re.Pattern[str], Replacement], ...]:
    numbered = "|".join([_NUMBERED, *installed().numbered])

    def compiled(rules: tuple[MaskingRule, ...]) -> list[tuple[re.Pattern[str], Replacement]]:
        return [(re.compile(rule.pattern.replace("<numbered>", numbered)), rule.replacement) for rule in rules]

    return (*compiled(BEFORE_ADAPTERS), *installed().masks, *compiled(AFTER_ADAPTERS))
