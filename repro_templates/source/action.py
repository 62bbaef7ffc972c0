"""The part of a script that shows the failure with its function and inputs, in few natural lines.

For an exception, a crash and a hang, it calls the compiled function once. For a divergence, it also computes eager's
result and has the assertion that fails: `torch.testing.assert_close`, or one about aliasing. Each run has inputs of its
own if the graph may write to them, and the same seed if it may draw random numbers.
"""

from __future__ import annotations

import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...store.document.case import Case, Graph, Node, every_node, tag
from ...store.failure import EAGER_NAN, ILL_CONDITIONED, NUMERIC, PRECISION, Failure, FailureKind, Phase
from .expressions import Unprintable, string
from .function import PrintedGraph
from .inputs import PrintedInputs, itemsize
from .layout import INDENT, WIDTH, PrintedCall, Statement, fitted

#: If there are more inputs than this, a function makes them.
_FEW_INPUTS = 6
#: The ends of the names of what is compared besides outputs. `fxminify.repro_templates.tracebacks` looks for them.
GRADS, INPUTS = "_grads", "_inputs"
#: The beginnings of messages of assertions that are not about values. `verify` reads them.
ALIAS_PREFIX = "alias: "
MISSING_PREFIX = "gradients are missing"
PRECISION_PREFIX = "computes "
#: What follows such a beginning, if the failure is of this class.
ILL_CONDITIONED_PREFIX = f"{ILL_CONDITIONED}: "

#: The source of `backends.running.execution.cotangents`, the gradients of the outputs (a test compares the two).
COTANGENTS = """\
generator = torch.Generator().manual_seed(0)
draw = lambda low, high, o: torch.randint(low, high, o.shape, generator=generator)
cotangents = [(draw(1, 17, o) * (2 * draw(0, 2, o) - 1) / 8).to(o) for o in outputs]"""


@dataclass(frozen=True, slots=True)
class Action:
    """``inputs`` is source that defines the inputs at module level, ``body`` is source that shows the failure."""

    inputs: str
    body: str


def make_action(
    case: Case,
    printed: PrintedGraph,
    inputs: PrintedInputs,
    failure: Failure,
    arguments: str,
    managers: Sequence[str],
    *,
    earlier: Sequence[PrintedInputs] = (),
    summed: bool = False,
) -> Action:
    """The end of the script for ``failure``. ``arguments`` are the arguments of `torch.compile` besides the function.

    ``earlier`` has the inputs of earlier calls; None stands for an input of the last call. If ``summed``, the script
    compares gradients of the sum of all outputs instead of those that the worker compared.
    """
    kind = str(failure.detail.get("class", "value")) if failure.kind is FailureKind.DIVERGENCE else ""
    backward = failure.phase is Phase.BACKWARD
    twice = bool(kind) and kind != "alias"
    separate = kind == "mutation" or ((twice or case.calls > 1 or earlier) and mutates(case.graph))
    separate = separate or bool(earlier and backward and kind)
    in_function = separate or len(inputs.arguments) > _FEW_INPUTS
    maker = _Maker(case, printed, inputs, f"torch.compile({printed.name}, {arguments})", managers, in_function)
    maker.earlier = earlier
    maker.read(failure)
    if backward and maker.detached:
        body = maker.attached(maker.detached[1])
    elif backward and kind:
        body = maker.gradients(summed and not maker.missing)
    elif kind == "alias":
        body = maker.alias(failure)
    elif kind == "mutation":
        body = maker.mutation()
    elif kind:
        body = maker.divergence(kind)
    else:
        body = maker.exception()
    return Action(maker.inputs_text(), fitted(body, WIDTH))


class _Maker:
    def __init__(
        self,
        case: Case,
        printed: PrintedGraph,
        inputs: PrintedInputs,
        compiled: str,
        managers: Sequence[str],
        in_function: bool,
    ) -> None:
        self.case = case
        self.printed = printed
        self.inputs = inputs
        self.compiled = compiled
        self.managers = managers
        self.in_function = in_function
        self.seed = ["torch.manual_seed(0)"] if draws(case.graph) else []
        self.earlier: Sequence[PrintedInputs] = ()
        self.arguments = "*make_inputs()" if in_function else ", ".join(inputs.arguments)

    def marks(self, arguments: Sequence[str]) -> list[Statement]:
        """Statements that make dimensions of the inputs symbolic, for inputs with names."""
        marks = []
        for name, value in zip(arguments, self.case.inputs, strict=True):
            dynamic = self.case.tensors[value["tensor"]].dynamic if tag(value) == "tensor" else ()
            if dynamic and name != "None":
                which = repr(dynamic[0] if len(dynamic) == 1 else dynamic)
                marks.append(Statement(PrintedCall("torch._dynamo.mark_dynamic", (name, which))))
        return marks

    def read(self, failure: Failure) -> None:
        """Set what depends on the failure: the backward pass, the tolerance, the text of a divergence."""
        detail = failure.detail
        self.result, self.backward_pass = "", list[str]()
        if failure.phase is Phase.BACKWARD:
            self.result = "output" if self.printed.single else "outputs"
            total = "sum(o.sum() for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad)"
            self.backward_pass = ["output.sum().backward()" if self.printed.single else f"{total}.backward()"]
        ran = failure.phase in (Phase.FORWARD, Phase.BACKWARD) and failure.kind is not FailureKind.DIVERGENCE
        if ran and any(spec.device not in ("cpu", "meta") for spec in self.case.tensors):
            self.backward_pass.append("torch.accelerator.synchronize()")
        self.missing = detail.get("class") == "gradient"
        #: The number of the output that has a gradient in one of the two results only.
        self.detached = re.fullmatch(r"output (\d+)", str(detail.get("where", ""))) if self.missing else None
        tolerance = self.case.tolerance.get(str(detail.get("dtype", "")))
        self.options = "" if tolerance is None else f", rtol={tolerance!r}, atol={tolerance!r}"
        self.nan = detail.get(EAGER_NAN) is True
        prefix = ILL_CONDITIONED_PREFIX if detail.get("class") == ILL_CONDITIONED else ""
        if detail.get("class") == PRECISION:
            prefix = f"{PRECISION_PREFIX}{detail.get('dtype', '')} as {detail.get('as', '')}: "
        #: The ``msg`` argument of `assert_close`, if its own text would not say what differs.
        self.message = f", msg=lambda text: {string(prefix)} + text" if prefix else ""

    def inputs_text(self) -> str:
        """Source of the inputs: assignments, or a function that makes new ones in each call."""
        statements = [*self.inputs.statements, *self.marks(self.inputs.arguments)]
        constants = list(self.inputs.constants)
        if not self.in_function:
            return "\n".join(s.layout() for s in (*statements, *constants))
        if self.inputs.seeded_constants:
            raise Unprintable("a tensor inside the graph is drawn at random, and so are inputs that are made twice")
        lines = [s.layout() for s in constants]
        return "\n".join([*self._make_inputs(statements), *(["", *lines] if lines else [])])

    def _make_inputs(self, statements: Sequence[Statement]) -> list[str]:
        results = self.inputs.arguments
        if len(statements) == 1 and (statements[0].target,) == results:
            short = f"{INDENT}return [{statements[0].expression}]"
            if len(short) <= WIDTH:
                return ["def make_inputs():", short]
        lines = [replace(s, depth=s.depth + 1).layout() for s in statements]
        last = Statement(PrintedCall("return ", tuple(results), brackets=("[", "]")), depth=1)
        return ["def make_inputs():", *lines, last.layout()]

    def exception(self) -> str:
        if self.case.calls > 1:
            return self.repeated()
        if self.earlier:
            return self.sequence()
        called = self.forward(self.called(self.compiled, self.result))
        return self.with_backward([*self.seed, *called, *self.backward_pass])

    def again(self, arguments: str) -> list[str]:
        """A call of the compiled function, with its backward pass."""
        called = f"{self.result} = compiled({arguments})" if self.result else f"compiled({arguments})"
        return [*self.forward([called]), *self.backward_pass]

    def calls_before(self, call: Callable[[str], list[str]] | None = None) -> list[str]:
        """Return the compiled function, and its calls with the inputs of earlier calls, each with its backward
        pass.

        ``call(arguments)`` are the lines of one call, by default the lines of `again`.
        """
        call = self.again if call is None else call
        lines = [f"compiled = {self.compiled}"]
        for before in self.earlier:
            lines += [s.layout() for s in (*before.statements, *self.marks(before.arguments))]
            if self.in_function:
                others = [(i, name) for i, name in enumerate(before.arguments) if name != "None"]
                lines += ["before = make_inputs()", *(f"before[{i}] = {name}" for i, name in others)]
                lines += call("*before")
            else:
                pairs = zip(before.arguments, self.inputs.arguments, strict=True)
                lines += call(", ".join(last if first == "None" else first for first, last in pairs))
        return lines

    def sequence(self) -> str:
        """Calls with other inputs, then the call that fails."""
        return self.with_backward([*self.calls_before(), *self.seed, *self.again(self.arguments)])

    def repeated(self) -> str:
        """Several calls of the compiled function, each with its backward pass."""
        inner = "\n".join([*self.seed, *self.again(self.arguments)])
        loop = [f"for _ in range({self.case.calls}):", textwrap.indent(inner, INDENT)]
        return f"compiled = {self.compiled}\n" + self.with_backward(loop)

    def divergence(self, kind: str, after: str = "") -> str:
        """A comparison of both results, with `assert_close` or with what comes ``after`` them."""
        again = self.case.calls > 1 or bool(self.earlier)
        lines = [*(self.calls_before() if self.earlier else []), *self.seed]
        lines += self.called(self.printed.name, "expected")
        actual = [*self.seed, *self.called("compiled" if again else self.compiled, "actual")]
        if self.case.calls > 1:
            loop = textwrap.indent("\n".join(actual), INDENT)
            actual = [f"compiled = {self.compiled}", f"for _ in range({self.case.calls}):", loop]
        lines += actual
        options = ", check_stride=True" if kind == "stride" else ""
        return self.within(lines, after or self.close(options, equal_nan=kind in NUMERIC))

    def attached(self, output: str) -> str:
        """Return an assertion that an output requires a gradient if the output of eager does."""
        place = "" if self.printed.single else f"[{output}]"
        same = f"actual{place}.requires_grad == expected{place}.requires_grad"
        return self.divergence("gradient", after=f"assert {same}, {string(MISSING_PREFIX)}")

    def close(self, options: str = "", what: str = "", *, equal_nan: bool = True) -> str:
        """Return the comparison, on several lines if it is long. ``what`` is the end of the names that are
        compared.

        NaN equals NaN only if eager computes one. Otherwise the script would suggest a NaN that does not occur.
        """
        options += ", equal_nan=True" if equal_nan and self.nan else ""
        arguments = f"actual{what}, expected{what}{self.options}{options}{self.message}"
        line = f"torch.testing.assert_close({arguments})"
        if len(line) <= WIDTH:
            return line
        return f"torch.testing.assert_close(\n{INDENT}{arguments}\n)"

    def mutation(self) -> str:
        """A comparison of the inputs after the call."""
        lines = [
            *(self.calls_before() if self.earlier else []),
            f"expected{INPUTS}, actual{INPUTS} = make_inputs(), make_inputs()",
            *self.seed,
            f"{self.printed.name}(*expected{INPUTS})",
            *self.seed,
            f"{'compiled' if self.earlier else self.compiled}(*actual{INPUTS})",
        ]
        return self.within(lines, self.close(what=INPUTS))

    def alias(self, failure: Failure) -> str:
        """An assertion that an output shares the storage of the right input or output, and of no other."""
        place = re.fullmatch(r"output (\d+)", str(failure.detail.get("where", "")))
        owner, found = (
            re.fullmatch(r"(input|output) (\d+)", str(failure.detail.get(k, ""))) for k in ("expected", "actual")
        )
        index = owner or found
        if place is None or index is None:
            raise Unprintable("which output should alias which input is not known")
        inputs = (
            [f"inputs[{i}]" for i in range(len(self.inputs.arguments))] if self.in_function else self.inputs.arguments
        )
        output = "actual" if self.printed.single else f"actual[{place[1]}]"
        same = "==" if owner else "!="
        lines = self.calls_before() if self.earlier else []
        lines += ["inputs = make_inputs()"] if self.in_function else []
        arguments = "*inputs" if self.in_function else self.arguments
        lines += [*self.seed, *self.called("compiled" if self.earlier else self.compiled, "actual", arguments)]
        lines.append(f"storage = {output}.untyped_storage().data_ptr()")
        message = (
            f"{ALIAS_PREFIX}{place[0]} should lie in {(owner or ['no input'])[0]}, not in {(found or ['no input'])[0]}"
        )
        other = inputs[int(index[2])] if index[1] == "input" else f"actual[{index[2]}]"
        after = f"assert storage {same} {other}.untyped_storage().data_ptr(), {string(message)}"
        return self.within(lines, after)

    def gradients(self, summed: bool) -> str:
        """A comparison of `torch.autograd.grad` of both: of the sum of the outputs, or for seeded gradients of each."""
        wanted = [a for a, value in zip(self.inputs.arguments, self.case.inputs, strict=True)
                  if tag(value) == "tensor" and self.case.tensors[value["tensor"]].requires_grad]  # fmt: skip
        inner = [*self.seed]
        if self.in_function and not self.earlier:
            inner.append(f"[{', '.join(self.inputs.arguments)}] = make_inputs()")
        single = self.printed.single
        plain = ", ".join(self.inputs.arguments)
        unused = ", allow_unused=True" if len(wanted) > 1 else ""
        if summed and single and not inner and not self.earlier and not self.managers:
            lines = [
                f"{name} = torch.autograd.grad({function}({plain}).sum(), [{', '.join(wanted)}]{unused})"
                for name, function in ((f"expected{GRADS}", self.printed.name), (f"actual{GRADS}", "compiled"))
            ]
            return "\n".join([f"compiled = {self.compiled}", *lines, self.close(what=GRADS)])
        inner += self.inside([f"outputs = {'[' if single else ''}function({plain}){']' if single else ''}"])
        if not single:
            inner.append("outputs = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]")
        if summed:
            total = "outputs[0].sum()" if single else "sum(o.sum() for o in outputs)"
            inner.append(f"return torch.autograd.grad({total}, [{', '.join(wanted)}]{unused})")
        else:
            inner.append(COTANGENTS)
            inner.append(f"return torch.autograd.grad(outputs, [{', '.join(wanted)}], cotangents, allow_unused=True)")
        lines = [f"expected{GRADS} = gradients({self.printed.name})", f"actual{GRADS} = gradients({self.compiled})"]
        given = ""
        if self.earlier:
            given = "".join(f", {name}" for name in self.inputs.arguments)
            lines = [
                *self.calls_before(lambda arguments: [f"gradients(compiled, {arguments})"]),
                f"expected{GRADS} = gradients({self.printed.name}, *make_inputs())",
                f"actual{GRADS} = gradients(compiled, *make_inputs())",
            ]
        after = self.close(what=GRADS)
        if self.missing:
            there = f"[g is not None for g in {{}}{GRADS}]"
            after = f"assert {there.format('actual')} == {there.format('expected')}, {string(MISSING_PREFIX)}"
        return "\n".join([
            f"def gradients(function{given}):",
            textwrap.indent("\n".join(inner), INDENT),
            "",
            *lines,
            after,
        ])  # fmt: skip

    def called(self, function: str, name: str, arguments: str | None = None) -> list[str]:
        """Lines that call ``function`` on the inputs and bind the result to ``name``."""
        start = f"{name} = " if name else ""
        arguments = self.arguments if arguments is None else arguments
        line = f"{start}{function}({arguments})"
        if len(line) + len(INDENT) <= WIDTH or function == self.printed.name:
            return [line]
        return [f"compiled = {function}", f"{start}compiled({arguments})"]

    def within(self, lines: Sequence[str], after: str = "") -> str:
        """``lines`` inside the context managers, then ``after`` outside of them."""
        return "\n".join([*self.inside(lines), *([after] if after else [])])

    def with_backward(self, lines: Sequence[str]) -> str:
        """``lines`` inside the context managers, unless a backward pass is among them: only its `forward` is inside."""
        return "\n".join(lines) if self.backward_pass else self.within(lines)

    def forward(self, lines: Sequence[str]) -> list[str]:
        """``lines`` that a backward pass follows, inside the context managers. Autocast is off in a backward pass."""
        return self.inside(lines) if self.backward_pass else list(lines)

    def inside(self, lines: Sequence[str]) -> list[str]:
        """``lines`` inside the context managers, if there are any."""
        if not self.managers:
            return list(lines)
        return [f"with {', '.join(self.managers)}:", textwrap.indent("\n".join(lines), INDENT)]


_IN_PLACE_OPERATORS = frozenset(
    {"iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift",
     "setitem", "delitem", "setattr"}
)  # fmt: skip
#: Functions that update the statistics among their arguments unless they are called for inference.
_UPDATES_STATISTICS = frozenset(
    {"batch_norm", "instance_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
     "cudnn_batch_norm", "fused_moving_avg_obs_fake_quant", "embedding_renorm_", "set_", "resize_"}
)  # fmt: skip
_KNOWN = frozenset({"aten", "prims", "prim", "quantized_decomposed", "_c10d_functional"})
_RANDOM = re.compile(
    r"(?:rand|randn|randint|randperm)(?:_like)?_?|(?:\w*_)?(?:dropout|dropout1d|dropout2d|dropout3d)_?|normal_?|"
    r"bernoulli_?|multinomial|poisson|binomial|rrelu_?|rrelu_with_noise\w*|gumbel_softmax|uniform_?|exponential_|"
    r"cauchy_|geometric_|log_normal_|random_|_sample_dirichlet|_standard_gamma|fractional_max_pool[23]d\w*|"
    r"inductor_random|inductor_randint|native_dropout|_fused_dropout|manual_seed|seed|"
    r"multi_head_attention_forward|lstm|gru|rnn_tanh|rnn_relu"
)


def functions(graph: Graph) -> Iterator[tuple[Node, str, str]]:
    """``(node, namespace, bare name)`` of every call of ``graph`` and its sub-graphs."""
    for node in every_node(graph):
        if node.op == "call_method":
            yield node, "method", str(node.target)
        elif node.op == "call_module":
            yield node, "module", str(node.target)
        elif node.op == "call_function" and (kind := tag(node.target)):
            text = str(node.target[kind])
            namespace, _, rest = text.rpartition("::")
            name = rest.partition(".")[0] if kind in ("op", "packet") else rest.rpartition(".")[2]
            yield node, namespace or kind, name


def mutates(graph: Graph) -> bool:
    """Whether a run may write into a tensor that existed before it."""
    return any(_writes(node, namespace, name) for node, namespace, name in functions(graph))


def draws(graph: Graph) -> bool:
    """Whether a run may draw from the random generator."""
    return any(_draws(node, name) for node, _, name in functions(graph))


def _draws(node: Node, name: str) -> bool:
    if "scaled_dot_product" in name:  # random with a dropout probability, the only positional float
        return node.kwargs.get("dropout_p", 0.0) != 0.0 or any(type(a) is float and a for a in node.args)
    if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return any(type(a) is float and a for a in (*node.args, node.kwargs.get("dropout")))
    if name == "dropout" and (False in node.args[2:3] or node.kwargs.get("training") is False):
        return False
    return _RANDOM.fullmatch(name) is not None


def _writes(node: Node, namespace: str, name: str) -> bool:
    if namespace == "module" or name in _UPDATES_STATISTICS or name in _IN_PLACE_OPERATORS:
        return True
    if name.endswith("_") and not name.endswith("__"):
        return True
    if "out" in node.kwargs or node.kwargs.get("inplace", False) is not False:
        return True
    if namespace in ("method", "fn", "hop"):
        return any(value is True for value in node.args) and name in ("relu", "dropout", "hardtanh", "elu", "silu")
    return namespace not in _KNOWN or node.target.get("op", "").endswith(("out", "_out"))


DEVICE = "DEVICE"
_BEFORE = (("device", "="), ("torch", ".", "device", "("), (".", "to", "("))


def accelerator(case: Case) -> str:
    """Return the only device of the case besides the CPU and ``meta``. Empty if there are several or none."""
    found = {t.device for t in case.tensors} - {"cpu", "meta"}
    return found.pop() if len(found) == 1 else ""


def with_device(source: str, device: str) -> str:
    """``source`` with `DEVICE` instead of each string ``device`` that is a device."""
    if not device:
        return source
    lines = source.splitlines(keepends=True)
    before: list[str] = []
    places = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_device = token.type == tokenize.STRING and token.string in (f'"{device}"', f"'{device}'")
        if is_device and any(tuple(before[-len(words) :]) == words for words in _BEFORE):
            places.append((token.start, token.end))
        if token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT):
            before.append(token.string)
    for (row, start), (_, end) in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + DEVICE + line[end:]
    return "".join(lines)


#: The memory, in GiB, of a script that runs out of memory, without its inputs. torch itself needs one.
MEMORY = 4


def memory_limit(case: Case, failure: Failure) -> str:
    """The line that limits the memory of a script that runs out of it, empty for any other failure."""
    if failure.kind is not FailureKind.OUT_OF_MEMORY or any(
        spec.device not in ("cpu", "meta") for spec in case.tensors
    ):
        return ""
    limit = MEMORY + 4 * sum(spec.numel * itemsize(spec.dtype) for spec in case.tensors) // 2**30
    return f"resource.setrlimit(resource.RLIMIT_DATA, ({limit} << 30, {limit} << 30))  # or it takes all there is"
