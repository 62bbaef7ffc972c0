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
_TRAILER = re.compile(
    r"\s*(Set TORCH|While executing|Original traceback|from user code|Traceback \(most recent|target:|  args\[|"
    r"GraphModule:|You can suppress|Hint:|Developer debug|Found from|Exception raised from|C\+\+ CapturedTraceback|"
    r"graph\(\):|(class \w+\(torch\.nn\.Module\)|def forward\(self)|%\w+ : .*= (placeholder|call_\w+|get_attr)\[|"
    r"opcode +name +target|frame #\d|File \"[^\"]*\", line \d)"
)
_ERROR_LINE = re.compile(
    r"(?i)\b(error|fatal|assert(ion)?|abort(ed)?|check failed|failed to|exception|terminate called after)\b|"
    r"^\[?[EF]\d{4} "
)
#: The message of the C++ runtime for an uncaught exception.
_WHAT = re.compile(r"what\(\): .*")
#: A warning, or a log line below error level: Python's, glog's, a C++ compiler's.
_WARNING = re.compile(r"Warning: |(?i:\bwarning: )|^\s*\[?[IWDV]\d{4} |^(WARNING|INFO|DEBUG)\b")
#: Messages that Dynamo logs about its own work, which it also raises.
_DYNAMO = re.compile(r"^\[?[EF]\d{4} .*\btorch/(_guards|_dynamo/(?!backends/)[\w/]+)\.py:\d+\]")
#: What `faulthandler` prints; its frames become `Failure.frames`.
_FAULT = re.compile(r"Fatal Python error: |Current thread |Thread 0x|Stack \(most recent|Extension modules: ")
_LOG_PREFIX = re.compile(r"^\[?[EF]\d{4} [\d:.]+\s+\d+ [\w./-]+:\d+\] ")

#: Names that compilers number: a buffer, a temporary, an index.
_NUMBERED = (
    r"buf|tmp|op|arg|primals|tangents|getitem|val|var|node|ptr|input|output|in|out|loc|"
    r"kernel|seed|result|graph|fn|func|main_graph|eval_with_key"
)
#: A list in brackets, which may contain lists.
_NESTED = r"[(\[{](?:[^()\[\]{}]|[(\[{][^()\[\]{}]*+[)\]}])*+[)\]}]"


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
    """A set with its items in order, each once."""
    return "{" + ", ".join(sorted(dict.fromkeys(found[0][1:-1].split(", ")))) + "}"


#: No pattern may try a long word again from each of its letters: messages of megabytes exist.
BEFORE_ADAPTERS = (
    MaskingRule("color", r"\x1b\[[\d;]*m", "", "\x1b[31merror", "error"),
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
        r"(?i)\b(users|used by|consumers|producers|args|kwargs|(?:all_)?input_nodes|operands)(['\"]?\s?[=:]?\s?)"
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
        "<path>",
        "in /home/me/train.py:12",
        "in <path>",
    ),
    MaskingRule("generated-file", r"\bc[a-z0-9]{49,52}\b", "<generated>", f"module c{'a1' * 25}", "module <generated>"),
)
#: Applied after the rules of adapters, which may contain numbers.
AFTER_ADAPTERS = (
    MaskingRule("ir-value", r"%\w+(?:[:#]\d+)?", "<value>", "operand %12:2 is", "operand <value> is"),
    MaskingRule("dynamo-input", r"\b[lL]_\w*_\b", "<input>", "L_self_weight_ is", "<input> is"),
    MaskingRule("mlir-shape", r"(?<=tensor<)(?:[\d?]+x)+", "<shape>x", "tensor<4x?xf32>", "tensor<<shape>xf32>"),
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
    # Python prints the items of a set in another order in each process.
    MaskingRule("set", r"\{[^{}:\n]*+\}", _in_order, "no rule for {tanh, gelu}", "no rule for {gelu, tanh}"),
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


def first_paragraph(text: str) -> str:
    """A message up to its first blank line, at most 20 lines. Advice, code or a stack follows."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        if lines and (not line.strip() or _TRAILER.match(line)):
            break
        lines.append(line.strip())
    return "\n".join(lines[:20])


def first_error_line(text: str, *, generic: bool = False) -> str:
    """The first line of captured standard error that reports an error, empty if there is none.

    Warnings, log lines below error level or of Dynamo, Python tracebacks and the dump of ``faulthandler`` are passed
    over. Where the exception's message is ``generic`` and no line reports an error, it is the first line that is left.
    """
    rules, left = installed(), ""
    if last_words := _WHAT.search(text):  # threads that die together garble the lines before it
        return last_words[0]
    inside = ""  # what the indented lines that follow belong to
    for line in text.splitlines():
        if inside and (not line.strip() or line[0].isspace()):
            continue
        if line.startswith("Traceback (most recent"):
            inside = "traceback"
        elif inside == "traceback":
            inside = ""  # its last line is the exception, which the program has caught or reports itself
        elif _WARNING.search(line) or _FAULT.match(line) or _DYNAMO.match(line) or rules.noise.search(line):
            inside = "warning"
        elif _ERROR_LINE.search(line) or rules.errors.search(line):
            return rules.prefixes.sub("", _LOG_PREFIX.sub("", line.strip()))
        else:
            inside = ""
            left = left or line.strip()
    return left if generic else ""


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


#: The rules after which a text is still one for a person.
_READABLE = frozenset({"color", "address", "path", "generated-file", "ir-value", "spaces"})


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
