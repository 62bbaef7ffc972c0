"""Find the words of a text that tell one bug from another.

Compilers put one sentence before every bug (``Compilation failed. See diagnostics.``) and print much after it: the
graph, the stack of modules, advice. So of a message only its *head* is compared: the lines up to the first one that
says something of its own. A line says nothing of its own if all its words are those with which any compiler reports any
failure. Where a whole message is like this it is *generic*, and the first error on file descriptor 2 is its diagnosis.
Of the lines after the head and after a diagnosis, only the operator counts that they name in a known form:
``target: aten.foo.default``, ``see current operation: "torch.operator"() {name = "torch.aten.foo"}``.

All functions take linear time; messages can have megabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .signature_rules import installed

#: The most characters and lines of a text that are read.
LONGEST, MOST_LINES = 64_000, 400
#: The most lines of a head and of what is compared after it, and the most characters of a line.
_MOST_HEAD, _MOST_TAIL, _MOST_LINE = 40, 20, 4000
#: Lines after an error that can belong to it.
_NOTES = 12

#: Words with which any compiler reports any failure, and the names of compilers, of their parts and forms of code.
_GENERIC_WORDS = frozenset(
    re.findall(
        r"\S+",
        """
        wasn't weren't isn't aren't hasn't didn't doesn't fully partially properly correctly completely
        successfully summary found triggered device-side unspecified launch encountered tool tools core proc procs root
        a able abort aborted aborting above accelerator after all also an and another any aot aotautograd api
        are arg args as assert assertion asserts at back back-end backend backends backward bad be because
        been before being below block buf bug bugs build building builds built but by c c++ call called
        calling can can't cannot catch caught cause caused causes check checked checking checks clang clang++
        code codegen codes command commands compilation compilations compile compiled compiler compilers
        compiles compiling component console conversion convert converted converting converts coreml could
        couldn't cpp cpu crash crashed create created creating creation cubin cuda cxx detail detailed details
        device devices diagnostic diagnostics did died do does done driver due during dynamo each encounter
        encountered end engine engines entry error errored errors every exception exceptions execute executed
        executes executing execution executorch exit exited exits export exported exporter exporting exports
        external fail failed failing fails failure failures false fatal file filed files first followed
        following follows for forward from front front-end frontend function functions fused fx g++ gcc
        generate generated generating generation gone gpu graph graphmodule graphs had handled happened
        hardware has have here hint hip hlo host how i if implemented import imported importer importing
        imports in inductor inference info information initialization initialize initialized input inputs
        instruction instructions internal into invalid invoke invoked invoking ir iree is issue issues it its
        jit job jobs joint kernel kernels last legalization legalize legalized linalg llvm llvmir load loaded
        loading log logging logs look lower lowered lowering lowers main manager may message messages metal
        mhlo might mlir model models module modules more most mps must n/a network networks new next no node
        nodes non-zero none nonzero nor not note notes npu null nvcc nvfuser occurred occurs of old on one
        only onnx onnxruntime onto op opencl openvino operation operations operator operators ops optimization
        optimizations optimize optimized optimizer optimizing or other our output outputs parse parsed parser
        parsing partition partitions pass passes passmanager perform phase phases pipeline pipelines platform
        please previous problem problems process processed processes processing program programs ptx ptxas py
        python pytorch raise raised raises ran reason reasons rebuild recompile refer region relax relay
        report reported reporting reports return returned returns rocm run running runs runtime same see shall
        shlo should so some something source sources spirv stablehlo stage stages standard status stderr
        stdout step steps subgraph subgraphs subprocess support supported supports system target targets task
        tasks tensorrt terminated than that the their them then there these they this those threw throw thrown
        throws thunder tmp to torch torchdynamo torchfx torchmlir torchscript tosa tpu trace traced tracer
        tracing translate translated translating translation tried triton trt true try trying tvm two unable
        uncaught unexpected unexpectedly unhandled unknown unsupported us violated vulkan warning warnings was
        we went were what when where which while whilst who why will with within without would wrong xla xpu
        you your zero
        """,
    )
)
#: A class of exceptions, or a call of the compiler itself.
_GENERIC_NAME = re.compile(
    r"\w*(?:Error|Exception|Failure|Warning)|\w*PassManager(?:::run)?|lines?|\w+-(?:compile|opt|translate|mlir)"
)
#: A message that sends its reader to what was printed.
_POINTS = re.compile(
    r"(?i)\b(?:see|check|look at|refer to) (?:\w+ ){0,4}(?:above|below|logs?|diagnostics?|stderr|output)\b|"
    r"\bfollowing (?:diagnostics|errors?|output)\b"
)
#: An assertion failed in a kernel. Which one is on standard error.
_ON_DEVICE = re.compile(r"\A(?:\w+ error: )?device-side assert triggered")
#: A fault after which no call of the process reaches its device.
_DEVICE_FAULT = re.compile(
    r"(?:CUDA|HIP)\b[^\n:]*: (an illegal (?:memory access|instruction) was encountered|device-side assert triggered|"
    r"misaligned address|invalid program counter|unspecified launch failure|hardware stack error|"
    r"operation not supported on global/shared address space|uncorrectable ECC error encountered)"
)
#: The stack of the compiler's own frames, or the source of a kernel, with which a message begins.
_LEADING_SOURCE = re.compile(
    r"\A(?:at \d+:\d+:|File \"[^\"\n]*\", line \d+[^\n]*)\n(?:[^\n]*\n){0,400}?[ \t]*\^[ \t^~]*(?:\n|\Z)"
)
_LEADING_STACK = re.compile(r"\A(?:Traceback \(most recent call last\)|Stack trace):[^\n]*\n(?:[ \t]+[^\n]*\n)*+")
_WORD = re.compile(r"[A-Za-z_](?:[\w+-]|['.](?=\w)|::)*")
#: Masked text, paths, quoted commands and places in files, which say nothing of their own.
_SILENT = re.compile(
    r"<\w+>|(?:[\w.~+-]*+/)+[\w.+@-]*|\b[\w-]+\.(?:py|cc?|cpp|cu|h|hpp|mlir|ll|so|log|txt|json|onnx|pt|pb)\b(?::\d+)*|"
    r"\b0x[0-9a-fA-F]+|\bhttps?:\S+"
)
#: A number at the end of a name.
_NUMBERED = re.compile(r"[_.]?\d+$")
#: What follows is the graph, a stack or advice.
_TRAILER = re.compile(
    r"\s*(Set TORCH|While executing|Original traceback|from user code|Traceback \(most recent|target:|  args\[|"
    r"GraphModule:|You can suppress|Hint:|Developer debug|Found from|Exception raised from|C\+\+ CapturedTraceback|"
    r"graph\(\):|graph\(%|(class \w+\(torch\.nn\.Module\)|def forward\(self)|"
    r"%\w+ : .*= (placeholder|call_\w+|get_attr)\[|opcode +name +target|frame #\d|Stack trace\b|Stack:|"
    r"File \"[^\"]*\", line \d|\[bt\]|\s*\d+: (?:0x|_Z|tvm::|mlir::)|--->|"
    r"note: |Command:|For [\w-]+ developers|Add '-mlir-|Python Frames:|CUDA kernel errors might|"
    r"Compile with `?TORCH_USE|For debugging consider|Search for `(?:cuda|hip)Error)"
)
_GRAPH = re.compile(
    r"^\s*(?:graph\(|class \w+\(torch|def forward|%\w+ : |opcode +name|Traceback|module \{|func\.func)",
    re.MULTILINE,
)
#: A line that lists one thing: a name after a bullet, or indented.
_BULLET = re.compile(r"\s*(?:[-*•]+|\d+[.)])\s+(\S.*)|\s{2,}(?=\S)(\S.*)")

_ERROR_LINE = re.compile(
    r"(?i)\b(error|fatal|assert(ion)?|abort(ed)?|check failed|failed to|exception|terminate called after|panicked at)"
    r"\b|^\[?[EF]\d{4} "
)
#: The form in which compilers print errors, and nothing else does.
_DEFINITE = re.compile(
    r"(?:^|: |\) ?|> ?)(?:fatal )?error(?: *: |\[E\d+\])|\bLLVM ERROR: |Assertion [`'].*failed|"
    r"^[\w./-]+:\d+: \w+.*Assertion "
)
#: The message of the C++ runtime for an uncaught exception.
_WHAT = re.compile(r"what\(\): .*")
#: A warning, or a log line below error level: Python's, glog's, a C++ compiler's.
_WARNING = re.compile(
    r"Warning: |(?i:\bwarning: )|^\s*\[?[IWDV]\d{4} |^(?:\([\w ]+=\d+\) )?(WARNING|INFO|DEBUG)\b|\[[IWDV]\] "
)
#: What a C++ compiler prints of a place in a file, and the lines before it that say where it is.
_COMPILED = re.compile(r"\S+:\d+(?::\d+)?: (fatal error|error|warning|note)\b")
_COMPILING = re.compile(r"In file included from |\s+from \S+:\d+|\S+: (?:In |At )|\S+:\d+(?::\d+)?: +required ")
#: Messages that Dynamo logs about its own work, which it also raises.
_DYNAMO = re.compile(r"^\[?[EF]\d{4} .*\btorch/(_guards|_dynamo/(?!backends/)[\w/]+)\.py:\d+\]")
#: What `faulthandler` prints; its frames become `Failure.frames`.
_FAULT = re.compile(r"Fatal Python error: |Current thread |Thread 0x|Stack \(most recent|Extension modules: ")
#: What log lines begin with: the process, the level, the time and the place in the compiler's own code.
_LOG_PREFIX = re.compile(
    r"^(?:python[\d.]*: )?(?:\(\w+ pid=\d+\) |\[rank\d+\]:\s?)*(?:\[?[EF]\d{4} [\d:.]+\s+\d+ [\w./-]+:\d+\] |"
    r"(?:ERROR|CRITICAL|FATAL) [\d-]+ [\d:]+ \[[\w./-]+:\d+\]\s|\[[\d/:. -]+\] (?:\[[A-Z]+\] )*\[E\] )?"
)

#: How a text names the operator that it is about: by FX's interpreter, Inductor's lowerings, MLIR, a word before it.
_EXECUTING = re.compile(r"While executing %\w+ : .{0,2000}?= call_(?:function|method)\[target=([\w.]+)\]", re.DOTALL)
_TARGET = re.compile(r"^\s*target: ([\w.:]+)\s*$", re.MULTILINE)
_CURRENT = re.compile(
    r"see current operation: (?:%\S+ = )?\"?([\w.]+)\"?(?: \"([\w.:]+)\")?"
    r"(?:[^\n]{0,3000}?\{[^\n]{0,500}?\bname = \"([\w.:]+)\")?"
)
_KEYED = re.compile(
    r"(?i)\b(?:op_?types?|op_?names?|operators?|operations?|ops?|primitives?|layer type)\b['\"]?\s{0,2}"
    r"(?:[:=]\s{0,2}['\"`]?((?:\w+(?:\.|::))*[A-Za-z_]\w*)|['\"`]((?:\w+(?:\.|::))*[A-Za-z_]\w*)['\"`]|"
    r"((?:\w+(?:\.|::))+[A-Za-z_]\w*))"
)
#: A frame of C or C++ in a stack that the C library, LLVM, torch or Python printed.
_C_FRAME = re.compile(
    r"^\s*(?:frame )?#\d+:? +(?:0x[0-9a-f]+ +)?(?:in +)?(?P<named>[A-Za-z_~][^\s(+]*)|"
    r"^\s*(?:Binary file \"[^\"\n]*\", at |[^\s()]+\()(?P<symbol>[A-Za-z_]\w*)\+0x[0-9a-f]+"
)
#: Frames of the end of a process, whatever ended it.
_ENDING = re.compile(
    r"_*(?:GI_)*(?:abort|raise|gsignal|kill|killpg|pthread_kill\w*|assert_fail\w*|libc_\w+|restore_rt|sigaction|clone3?|"
    r"start_thread|kernel_rt_sigreturn|malloc_printerr|libc_message|int_free|Unwind_\w+|cxa_\w+)$|std::terminate|"
    r"llvm::sys::|\w*[Ss]ignal_?[Hh]andler|\w*PrintStackTrace|faulthandler_|_Py_Dump|_PyErr_|c10::(?:get_backtrace|Error)|"
    r"__interceptor|<unknown|_ZN4llvm3sys|_ZSt9terminate|_ZN10__cxxabiv1"
)


@dataclass(frozen=True, slots=True)
class Head:
    """The lines of a message up to the first that says something of its own, the ``items`` of a list below it, and the
    ``rest``.

    ``generic``: no line does, or the last one sends the reader to what was printed. ``operator`` is the one that the
    lines after the head name.
    """

    text: str
    items: tuple[str, ...]
    generic: bool
    operator: str
    rest: str


def is_trailer(line: str) -> bool:
    """Return True where the graph, a stack, a command or advice begins."""
    return _TRAILER.match(line) is not None


def is_telling(line: str) -> bool:
    """Return True if ``line`` has a word besides those with which any compiler reports any failure."""
    return any(_is_own(word) for word in _WORD.findall(_SILENT.sub(" ", line[:_MOST_LINE])))


def _is_own(word: str) -> bool:
    known = _NUMBERED.sub("", word).lower() in _GENERIC_WORDS or word.lower() in _GENERIC_WORDS
    return not (known or _GENERIC_NAME.fullmatch(word))


def head(text: str) -> Head:
    """Return the head of a message.

    A line that ends with a colon speaks of the next one. A list below it, one item in a line, belongs to it as a whole.
    """
    text = _LEADING_SOURCE.sub("", _LEADING_STACK.sub("", text[:LONGEST].strip())).strip()
    everything = installed().generic.search(text) is not None or _ON_DEVICE.search(text) is not None
    lines = text.splitlines()[:MOST_LINES]
    taken: list[str] = []
    items: list[str] = []
    for line in lines:
        if (taken and not line.strip()) or _TRAILER.match(line) or len(taken) + len(items) == _MOST_HEAD:
            break
        last = (taken or [":"])[-1]
        if last.endswith(":") and taken and (item := _BULLET.match(line)) and not line.rstrip().endswith(":"):
            items.append((item[1] or item[2]).rstrip()[:_MOST_LINE])
            continue
        if items or not (last.endswith(":") or not is_telling(last)):
            break
        taken.append(line.strip()[:_MOST_LINE])
    rest = "\n".join(lines[len(taken) + len(items) :])
    generic = everything or not any(map(is_telling, taken + items))
    generic = generic or bool(taken and not items and _POINTS.search(taken[-1]))
    return Head("\n".join(taken), tuple(items), generic, operator_in(rest, executing=generic), rest)


def in_one_line(text: str) -> str:
    """Return the line of the head of a message that says most, with the items of the list below it."""
    found = head(text)
    lines = found.text.splitlines()
    telling = [line for line in lines if is_telling(line)]
    line = (telling or lines or [""])[-1 if telling or found.items else 0]
    return f"{line} {'; '.join(found.items)}".strip()


def told_in(rest: str) -> tuple[str, ...]:
    """Return the lines after a head that say something of their own, up to what is always the graph or a stack."""
    out: list[str] = []
    for line in rest.splitlines()[:_MOST_TAIL]:
        if not line.strip() or _TRAILER.match(line):
            break
        if is_telling(line):
            out.append(line.strip()[:_MOST_LINE])
    return tuple(out)


def operator_in(text: str, *, executing: bool = False) -> str:
    """Return the operator that ``text`` names in a form in which only an operator is named, or an empty text.

    ``executing``: also the one that FX's interpreter executed.
    """
    text = text[:LONGEST]
    for pattern in (_TARGET, _CURRENT):
        if found := pattern.search(text):
            return plain_operator(next(name for name in reversed(found.groups()) if name))
    before = text[: end.start()] if (end := _GRAPH.search(text)) else text
    for found in _KEYED.finditer(before):
        name = next(filter(None, found.groups()))
        if _is_own(name):
            return plain_operator(name)
    found = _EXECUTING.search(text) if executing else None
    return plain_operator(found[1]) if found else ""


def plain_operator(name: str) -> str:
    """Return ``lgamma`` for ``torch.ops.aten.lgamma.default``, ``torch.aten.lgamma``, ``aten::lgamma`` and ``lgamma_``:
    one operator has these names at the levels of a compiler. Operators of other namespaces have overloads, too."""
    parts = re.split(r"\.|::", name)
    overloaded = parts[-1] == "default" or parts[:2] == ["torch", "ops"]
    if len(parts) > 2 and (parts[-3] in ("aten", "prims", "prim") or overloaded):
        parts = parts[: 4 if parts[:2] == ["torch", "ops"] else -1]  # without the overload
    return parts[-1].rstrip("_") or name


def error_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line of captured standard error that reports an error, and the lines that belong to it.

    The message of an uncaught C++ exception comes first: threads that die together garble the lines before it.
    """
    if last_words := _WHAT.search(text):
        yield last_words[0], ""
    rules, lines = installed(), text.splitlines()
    for number in _own_lines(lines):
        if _is_error(lines[number]):
            line = rules.prefixes.sub("", _LOG_PREFIX.sub("", lines[number].strip()))
            yield line, "\n".join(_notes(lines[number + 1 : number + 1 + _NOTES]))


def first_error(text: str, *, generic: bool = False) -> tuple[str, str]:
    """Return the first of `error_lines`, or two empty texts.

    Where the message of the exception is ``generic`` and no line reports an error, it is the first that is no noise.
    """
    if (first := next(error_lines(text), None)) is not None or not generic:
        return first or ("", "")
    lines = text.splitlines()
    left = (number for number in _own_lines(lines) if lines[number].strip())
    number = next(left, None)
    return ("", "") if number is None else (lines[number].strip(), "\n".join(lines[number + 1 : number + 1 + _NOTES]))


def without_warnings(text: str) -> str:
    """``text`` without the warnings of a C++ compiler and the lines that belong to them; the last line counts them."""
    out: list[str] = []
    context: list[str] = []
    inside, count = False, 0
    for line in text.splitlines():
        found = _COMPILED.match(line)
        if found is not None and (found[1] == "warning" or (inside and found[1] == "note")):
            context, inside, count = [], True, count + (found[1] == "warning")
        elif found is None and _COMPILING.match(line):
            context.append(line)
        elif found is not None or not (inside and line[:1].isspace()):
            out += [*context, line]
            context, inside = [], False
    if not count:
        return text
    return "\n".join([*out, *([] if inside else context), f"({count} warning{'s' * (count > 1)} left out)"])


def device_fault(message: str) -> str:
    """Return the words for a fault that has left the device dead, such as ``misaligned address``; empty for others."""
    found = _DEVICE_FAULT.search(message)
    return found[1] if found is not None else ""


def is_definite(line: str) -> bool:
    """Return True for an error in the form that compilers print: it is part of a failure whatever its message says."""
    return _DEFINITE.search(line[:_MOST_LINE]) is not None or _WHAT.match(line) is not None


def c_frame(text: str) -> str:
    """Return the innermost function of C or C++ in a stack that a dying process printed, or an empty text.

    Frames of the end of the process are passed over. Template arguments are left out.
    """
    for line in text.splitlines():
        if found := _C_FRAME.match(line[:_MOST_LINE]):
            name = found["named"] or found["symbol"]
            if not _ENDING.match(name):
                return name.partition("<")[0]
    return ""


def _own_lines(lines: list[str]) -> Iterator[int]:
    """The numbers of the lines that are no warnings, log lines below error level or of Dynamo, tracebacks of Python or
    parts of the dump of ``faulthandler``."""
    inside = ""  # what the indented lines that follow belong to
    for number, line in enumerate(lines):
        if inside and (not line.strip() or line[0].isspace()):
            continue
        if line.startswith("Traceback (most recent"):
            inside = "traceback"
        elif inside == "traceback":
            inside = ""  # its last line is the exception, which the program has caught or reports itself
        elif _is_noise(line[:_MOST_LINE]):
            inside = "warning"
        else:
            inside = ""
            yield number


def _is_noise(line: str) -> bool:
    found = (pattern.search(line) for pattern in (_WARNING, _DYNAMO, installed().noise))
    return any(found) or _FAULT.match(line) is not None


def _is_error(line: str) -> bool:
    line = line[:_MOST_LINE]
    return (_ERROR_LINE.search(line) or installed().errors.search(line)) is not None


def _notes(lines: list[str]) -> Iterator[str]:
    """The lines after an error up to the next one."""
    for line in lines:
        if _is_error(line) and "note: " not in line:
            return
        yield line
