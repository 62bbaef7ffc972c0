"""One bug, one signature: it survives what changes as a graph shrinks, and nothing else.

The messages are those of real failures (torch 2.13, onnxruntime, IREE), shortened.
"""

import random
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fxminify
from fxminify.store.diagnosis import first_error, head
from fxminify.store.failure import Failure, FailureKind, Frame, Phase
from fxminify.store.masking import AFTER_ADAPTERS, BEFORE_ADAPTERS, MaskingRule, mask
from fxminify.store.matching import FailureMatcher
from fxminify.store.signature import Match, Signature, signature


def error(message: str = "", type: str = "RuntimeError", **more: Any) -> Failure:
    return Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, type=type, message=message, **more)


SAME = {
    "temporary paths and numbers of an Inductor kernel": (
        "kernel, /tmp/torchinductor_root/3w/c3wtn3xwsxlu6ixyei4gaqbbop6onvxfepmoaiqix3b447awsv5u.main.cpp:128, "
        "index out of bounds: 0 <= tmp55 < 32L",
        "kernel, /tmp/torchinductor_me/h3/ch3i2aagu6yzldvzbc2v57rqbb6hge35rfzvmy4fx4k6veydhapk.main.cpp:205, "
        "index out of bounds: 0 <= tmp56 < 8L",
    ),
    "node context appended after a blank line": (
        "cannot lower relu",
        "cannot lower relu\n\nWhile executing %relu_3 : [num_users=1] = call_function[target=relu](args = (%add,))"
        '\nOriginal traceback:\n  File "model.py", line 3, in forward\n',
    ),
    "node context appended on the next line": ("cannot lower relu", "cannot lower relu\nWhile executing %relu_3"),
    "arguments of a lowering": (
        "LoweringException: NotImplementedError: no lowering\n  target: aten.foo.default\n  args[0]: TensorBox(buf3)",
        "LoweringException: NotImplementedError: no lowering\n  target: aten.foo.default\n  args[0]: TensorBox(buf11)",
    ),
    "a node in FX's own format": (
        "Error when translating node %_cdist : [num_users=1] = call_function[target=aten._cdist_forward.default]"
        "(args = (%layer_norm_8, %expand_1, 2.0, None), kwargs = {}). See the stack trace.",
        "Error when translating node %cdist : [num_users=2] = call_function[target=aten._cdist_forward.default]"
        "(args = (%args_0, %args_1, 1.0, 2), kwargs = {dtype: torch.float32}). See the stack trace.",
    ),
    "numbered names": ("no kernel for node 'node_relu_12'", "no kernel for node 'node_relu_3'"),
    "buffers and arguments": ("buf12 reads arg3_1 and primals_4", "buf0 reads arg0_1 and primals_1"),
    "Dynamo's placeholders": ("bad input l_x_", "bad input L_self_modules_layers_modules_0_parameters_weight_"),
    "shapes": (
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5), got [2, 3], torch.Size([4, 5]) and (2, 3, 4)",
        "mat1 and mat2 shapes cannot be multiplied (20x30 and 4x5), got [2], torch.Size([]) and (1,)",
    ),
    "symbolic sizes": ("cannot expand s77 to u0 + 3", "cannot expand s2 to u11 + 1"),
    "addresses": ("<object at 0x7f17feaa2f50>", "<object at 0x7f17feaa0000>"),
    "types of MLIR": (
        "'linalg.generic' op failed on tensor<2x3xf32> and !torch.vtensor<[2,3],f32> %12",
        "'linalg.generic' op failed on tensor<1x?x7xf32> and !torch.vtensor<[?,3],f32> %1#2",
    ),
    "names of fused kernels": ("cpp_fused_add_relu_3 failed", "cpp_fused_relu_0 failed"),
    "operands of a refused call": (
        "addmm() received an invalid combination of arguments - got (Tensor, Parameter, Parameter, int), but expected",
        "addmm() received an invalid combination of arguments - got (Tensor, int), but expected",
    ),
    "shapes of all inputs": ("no kernel for [(2, 3), (3,)], torch.float32", "no kernel for [(2,)], torch.float32"),
    "dtypes of all inputs": ("given torch.float32, torch.float32, torch.int64", "given torch.float32, torch.int64"),
    "neighbours of a node": (
        "refused relu (args=([add, x_1], 2), users: {truediv: None, output: None})",
        "refused relu (args=(x,), users: {})",
    ),
    "who reads a node": ("refused relu, used by [add, mul]", "refused relu, used by [output]"),
    "a whole graph": (
        "cannot compile graph():\n    %x : [num_users=1] = placeholder[target=x]\n    return x",
        "cannot compile graph():\n    %y : [num_users=2] = placeholder[target=y]\n    return (y, y)",
    ),
    "the code of a graph": (
        "cannot compile\nclass GraphModule(torch.nn.Module):\n    def forward(self, x): return x",
        "cannot compile\nclass GraphModule(torch.nn.Module):\n    def forward(self, y): return y",
    ),
    "colours": ("This is \x1b[96mstep\x1b[0m 3", "This is step 3"),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME.keys())
def test_what_changes_as_a_graph_shrinks_is_masked(one: str, other: str) -> None:
    assert signature(error(one)) == signature(error(other))


DIFFERENT = {
    "two operators": ("cannot lower relu", "cannot lower sin"),
    "atan and asinh": ("no lowering for aten.atan.default", "no lowering for aten.asinh.default"),
    "atan and atan2": ("no lowering for aten.atan", "no lowering for aten.atan2"),
    "log2 and log10": ("unsupported: log2", "unsupported: log10"),
    "exp and expm1": ("unsupported: exp", "unsupported: expm1"),
    "conv2d and conv3d": ("unsupported: conv2d", "unsupported: conv3d"),
    "two dtypes": ("no kernel for int32", "no kernel for int64"),
    "two dtypes of MLIR": ("no kernel for tensor<2xf16>", "no kernel for tensor<2xf32>"),
    "lists of operators": ("unsupported: [relu, sin]", "unsupported: [relu, cos]"),
    "two assertions": ("assert stride > 0 and offset >= 0", "assert size > 0 and offset >= 0"),
    "two targets in one format": (
        "Error when translating node %a : [num_users=1] = call_function[target=aten.lgamma](args = (%x,), kwargs = {})",
        "Error when translating node %a : [num_users=1] = call_function[target=aten.erfinv](args = (%x,), kwargs = {})",
    ),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_tells_bugs_apart_is_not_masked(one: str, other: str) -> None:
    assert signature(error(one)).difference(signature(error(other))) == "message"


def test_a_node_goes_by_what_it_calls_whatever_its_name_is() -> None:
    nodes = {"hidden_states": "roll", "h": "erf", "mask_1": "where"}
    text = "no kernel for hidden_states, node h, name='mask_1': h is bad"
    named = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, message=text, detail={"nodes": nodes})
    assert signature(named).message == "no kernel for roll, node erf, name='where': h is bad"


def test_a_symbol_that_is_the_name_of_an_input_speaks_of_a_size() -> None:
    """Dynamo names inputs that are sizes after their symbols, and gives a size another symbol in another run."""

    def refused(shape: str, nodes: dict[str, str]) -> Signature:
        text = f"view to a dynamic shape {shape}"
        return signature(Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, message=text, detail={"nodes": nodes}))

    captured = refused("(s77, s27, 4, 4)", {"s77": "<input>", "s27": "<input>"})
    assert captured.message == "view to a dynamic shape <shape>"
    assert captured.difference(refused("(s12, s27, 4, 4)", {"s27": "<input>"})) is None
    assert refused("s1 is not here", {"s1": "roll"}).difference(refused("s1 is not here", {"s1": "erf"})) == "message"


def test_a_plain_word_may_be_the_name_of_a_node() -> None:
    """A script calls the same node by another name, or by that of what it calls."""

    def refused(name: str, nodes: dict[str, str]) -> Signature:
        text = f"{name}: advanced index with input of rank 2"
        return signature(
            Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, message=text, detail={"nodes": nodes} if nodes else {})
        )

    captured = refused("w", {"w": "getitem"})
    assert captured.message == "w: advanced index with input of rank <n>"
    for same in (refused("getitem", {}), refused("rows", {"rows": "getitem"})):
        assert captured.difference(same) is None
        assert same.difference(captured) is None
        assert captured.named == same.named
    for other in (refused("w", {"w": "roll"}), refused("roll", {}), refused("rows", {"rows": "roll"})):
        assert captured.message == other.message or captured.difference(other) is not None
    assert captured.difference(refused("w", {})) is None  # a word that nothing says to be a name


def test_the_message_of_a_real_conversion_error_reads_well() -> None:
    assert mask("Could not find an implementation for Relu(14) node with name 'node_relu_2'") == (
        "Could not find an implementation for Relu(<n>) node with name 'node_relu'"
    )


def test_an_operator_named_only_in_a_cause_is_part_of_the_signature() -> None:
    def missing(op: str) -> Failure:
        text = f"No ONNX function found for <OpOverload(op='{op}', overload='default')>. Failure message: none"
        return error("Failed to convert the exported program.", "ConversionError", causes=(("DispatchError", text),))

    lgamma, cdist = signature(missing("prims.lgamma")), signature(missing("aten._cdist_forward"))
    assert lgamma.difference(cdist) == "message"
    assert "prims.lgamma" in lgamma.message
    assert lgamma == signature(missing("prims.lgamma"))


@pytest.mark.parametrize(
    "text",
    [
        "expected size 9==8 at dim=2\nError in op: torch.ops.mine.{op}.default",
        "expected size 9==8 at dim=2\nError in op: torch.ops.mine.{op}.Tensor",
        "LoweringException: IndexError: out of range\n  target: mine.{op}.default\n  args[0]: 1",
    ],
)
def test_operators_of_other_libraries_are_known_by_their_names(text: str) -> None:
    """The last part of such a name is the overload, which two operators have in common."""
    pool, crop = (error(text.format(op=op), "AssertionError") for op in ("pool", "crop"))
    assert signature(pool).difference(signature(crop)) is not None
    assert pool.headline() == f"AssertionError: {text.partition(chr(10))[0]} (pool)"


def test_type_origin_and_phase_are_part_of_the_signature() -> None:
    base = signature(error("x", frames=(Frame("torch/a.py", "lower", 3),)))
    assert base == signature(error("x", frames=(Frame("main.py", "f", 1), Frame("torch/a.py", "lower", 99))))
    assert base.difference(signature(error("x", "ValueError", frames=(Frame("torch/a.py", "lower", 3),)))) == "type"
    assert base.difference(signature(error("x", frames=(Frame("torch/b.py", "lower", 3),)))) == "origin"
    later = Failure(FailureKind.RUNTIME_ERROR, Phase.FORWARD, type="RuntimeError", message="x")
    assert base.difference(signature(later)) == "kind"


def test_modes_that_an_operator_passes_through_are_no_origin() -> None:
    """AOTAutograd looks at the results of operators in the first call of a compiled graph, under a mode."""
    code, call = "cguv7kxzpauc5ii2brdtea3qwffc6sp3ewezq6crot7sxrriwh74.py", Frame("torch/_ops.py", "__call__", 875)
    mode = (
        Frame("torch/_compile.py", "inner", 54),
        Frame("torch/_dynamo/eval_frame.py", "_fn", 1446),
        Frame("torch/_functorch/_aot_autograd/runtime_wrappers.py", "__torch_dispatch__", 432),
    )
    later = signature(error("x", frames=(Frame(code, "call", 129),)))
    assert signature(error("x", frames=(Frame(code, "call", 129), *mode, call))) == later
    assert signature(error("x", frames=(Frame(code, "call", 129), call, *mode, call))) == later
    assert signature(error("x", frames=(Frame(code, "call", 129), *mode))).origin.endswith("__torch_dispatch__")
    assert signature(error("x", frames=(Frame(code, "call", 129), call))).origin == "torch/_ops.py:__call__"
    assert signature(error("x", frames=(*mode, call))).origin == "torch/_ops.py:__call__"


@pytest.mark.parametrize(
    "file", ["cguv7kxzpauc5ii2brdtea3qwffc6sp3ewezq6crot7sxrriwh74.py", "<eval_with_key>.7", "<string>"]
)
def test_generated_code_is_one_place(file: str) -> None:
    assert signature(error("x", frames=(Frame(file, "call", 209),))).origin == "<generated>"


def test_match_levels() -> None:
    one = signature(error("a", frames=(Frame("f.py", "g"),)))
    other = signature(error("b", frames=(Frame("f.py", "g"),)))
    elsewhere = signature(error("b", frames=(Frame("h.py", "g"),)))
    assert [one.difference(other, m) for m in Match] == ["message", None, None]
    assert [one.difference(elsewhere, m) for m in Match] == ["message", "origin", None]


def test_where_an_exception_without_a_traceback_was_raised_is_no_difference() -> None:
    raised = signature(error("a", frames=(Frame("f.py", "g"),)))
    read = signature(replace(error("a"), detail={"untraced": True}))
    assert read.difference(raised) is None
    assert raised.difference(read) is None
    assert signature(error("a")).difference(raised) is not None
    assert signature(replace(error("b"), detail={"untraced": True})).difference(raised) is not None


IREE = """\
/lib/python3.11/site-packages/foo/__init__.py:12: UserWarning: an error may occur here
  warnings.warn("an error may occur here")
W1120 23:03:28.184000 8313 torch/onnx/_registration.py:107] failed to import torchvision
[W:onnxruntime:, graph.cc:1] assertion ignored
kernel.cpp:12:3: warning: unused variable 'error' [-Wunused-variable]
<unknown>:0: error: failed to legalize operation 'torch.aten.foo' that was explicitly marked illegal
<unknown>:0: note: see current operation: %12 = "torch.operator"(%3)
error: something later
"""


def test_diagnostics_tell_apart_what_a_generic_message_does_not() -> None:
    def generic(op: str) -> Failure:
        return error("compilation failed", diagnostics=IREE.replace("aten.foo", op))

    foo, bar = signature(generic("aten.foo")), signature(generic("aten.bar"))
    assert foo.difference(bar) == "diagnostics"
    assert foo.diagnostics == (
        "error: failed to legalize operation 'torch.aten.foo' that was explicitly marked illegal"
    )


def test_warnings_on_standard_error_do_not_enter_the_signature() -> None:
    warnings = "\n".join(IREE.splitlines()[:5])
    assert first_error(warnings) == ("", "")
    assert signature(error("x", diagnostics=warnings)) == signature(error("x"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("E1120 22:14:01.123456 812 sequential.cc:505] Non-zero status for Relu", "Non-zero status for Relu"),
        (
            "2025-11-20 23:03:23.344 [E:onnxruntime:, sequential_executor.cc:505 Run] Non-zero status for Relu",
            "[E:onnxruntime:, sequential_executor.cc:505 Run] Non-zero status for Relu",
        ),
        ("terminate called after throwing an instance of 'std::bad_alloc'", None),
        (
            "python3.11: lower.cpp:12: void lower(): Assertion `n > 0' failed.",
            "lower.cpp:12: void lower(): Assertion `n > 0' failed.",
        ),
        ("loading plugin\nFATAL: no such target", "FATAL: no such target"),
    ],
)
def test_the_first_line_that_reports_an_error(text: str, line: str | None) -> None:
    assert first_error(text)[0] == (line if line is not None else text)


def test_tracebacks_and_fault_dumps_on_standard_error_are_passed_over() -> None:
    text = """\
Traceback (most recent call last):
  File "a.py", line 3, in error
    raise error("failed to do it")
RuntimeError: failed to do it
Fatal Python error: Segmentation fault

Current thread 0x00007f9d (most recent call first):
  File "fatal.py", line 4 in error
Extension modules: numpy.error (total: 1)
"""
    assert first_error(text) == ("", "")
    assert first_error(text + "error: at last") == ("error: at last", "")


def test_a_message_ends_where_advice_and_stacks_begin() -> None:
    assert head("\nno kernel for int64\n\nSet TORCH_LOGS").text == "no kernel for int64"
    assert head("not supported\nException raised from f at a.cpp:1 (most recent call first):").text == "not supported"
    quoted = 'not supported in Torchscript:\n  File "<eval_with_key>.2", line 43\n    y = cos(x)\n        ~ <--- HERE'
    assert head(quoted).text == "not supported in Torchscript:"


def test_hangs_and_memory_are_known_by_kind_and_phase() -> None:
    hang = Failure(FailureKind.HANG, Phase.COMPILE, diagnostics="error: half a line", message="no answer in 10 s")
    assert signature(hang) == Signature("hang", "compile")
    killed = Failure(FailureKind.OUT_OF_MEMORY, Phase.COMPILE, message="514 MiB resident")
    refused = Failure(
        FailureKind.OUT_OF_MEMORY, Phase.COMPILE, type="RuntimeError", message="not enough memory: 12 bytes"
    )
    assert signature(killed) == signature(refused)


def test_crashes_are_known_by_signal_place_and_diagnostics() -> None:
    def crash(signum: int, place: str = "lower", diagnostics: str = "") -> Signature:
        return signature(
            Failure(
                FailureKind.CRASH,
                Phase.COMPILE,
                signal=signum,
                frames=(Frame("be.py", place),),
                diagnostics=diagnostics,
            )
        )

    assert crash(11).type == "signal 11"
    assert crash(11).difference(crash(8)) == "type"
    assert crash(11).difference(crash(11, "schedule")) == "origin"
    bad = crash(11, diagnostics="error: bad opcode")
    assert bad.difference(crash(11, diagnostics="error: bad operand")) == "diagnostics"
    assert bad.difference(crash(11)) is None, "a crash whose last words did not get out is not another one"


def test_threads_that_die_together_are_one_crash_whoever_is_first() -> None:
    thrown = "terminate called after throwing an instance of 'std::runtime_error'"
    what = "  what():  kernel, /tmp/x/c1.main.cpp:208, index out of bounds: 0 <= tmp56 < 8L"
    orders = [f"{thrown}\n{what}\nterminate called recursively", f"terminate called recursively\n{thrown}\n{what}",
              f"terminate called recursively{thrown}\n{what}", "terminate called recursively"]  # fmt: skip
    seen = [signature(Failure(FailureKind.CRASH, Phase.FORWARD, signal=6, diagnostics=text)) for text in orders]
    assert all(a.difference(b) is None for a in seen for b in seen)
    assert seen[0].diagnostics == "what(): kernel, <path>, index out of bounds: <n> <= tmp < <n>"


def test_a_headline_has_the_numbers_and_no_path_of_this_machine() -> None:
    what = "  what():  kernel, /tmp/x/c1.main.cpp:208, index out of bounds: 0 <= tmp56 < 8L"
    died = Failure(FailureKind.CRASH, Phase.FORWARD, signal=6, message="the process died of SIGABRT", diagnostics=what)
    assert died.headline() == "the process died of SIGABRT: kernel, index out of bounds: 0 <= tmp56 < 8L"


def test_an_exception_without_a_message_is_called_by_what_was_executed() -> None:
    node = "%logspace : [num_users=1] = call_function[target=torch.logspace](args = (0, 5, 6), kwargs = {base: -2.0})"
    raised = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "NotImplementedError", f"While executing {node}\nmore")
    assert raised.headline() == "NotImplementedError: while executing torch.logspace"
    said = replace(raised, message=f"no rule\n\nWhile executing {node}")
    assert said.headline() == "NotImplementedError: no rule"


@pytest.mark.parametrize("words", ["unsupported operator foo in", "Unable to parse module:\nerror: no rule for foo in"])
def test_a_message_of_a_megabyte_that_differs_in_each_run_is_known_by_its_words(words: str) -> None:
    before = time.process_time()
    draw = random.Random(0)

    def noise(kind: str) -> str:
        if kind == "lines":
            return "\n" + "\n".join(
                f"%v{draw.random()} = node_{draw.random()} {draw.randbytes(9)!r}" for _ in range(20_000)
            )
        return {
            "hex": draw.randbytes(500_000).hex(),
            "numbers": " ".join(map(str, draw.sample(range(10**6), 150_000))),
        }[kind]

    for kind in ("lines", "hex", "numbers"):
        runs = [error(f"{words} {noise(kind)}") for _ in range(2)]
        other = error(f"{words.replace('foo', 'bar')} {noise(kind)}")
        assert signature(runs[0]) == signature(runs[1])
        assert signature(runs[0]) != signature(other)
        assert FailureMatcher((runs[0],), strict=kind != "lines").shows(runs[1])
    assert time.process_time() - before < 30, "a second or two is usual"


def test_masking_a_huge_message_is_quick_and_bounded() -> None:
    assert len(mask("%x : [num_users=1] = " * 200_000)) <= 1000


@pytest.mark.parametrize("unit", ["x", "_1", "/", "[ ", "Warning"])
def test_masking_takes_linear_time_whatever_repeats(unit: str) -> None:
    before = time.process_time()  # regular expressions run no lines of Python that could be counted
    text = unit * 100_000
    signature(Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, message=text, diagnostics=f"error: {text}"))
    assert time.process_time() - before < 30, "a tenth of a second is usual, quadratic time takes many minutes"


def test_the_digest_of_a_signature_is_stable() -> None:
    assert Signature("compile_error", "compile", "RuntimeError", "cannot lower relu").digest == "v3:c6a59d3a5ea3"
    assert Signature("compile_error", "compile", "E", "m", version=1).digest.startswith("v1:")  # of an older row


def cpp_error(line: str) -> Failure:
    """What Inductor raises where the C++ compiler refuses its code."""
    output = f"/tmp/torchinductor_me/ab/cabc.main.cpp:23:41: {line}\n   23 | auto tmp = f(x);\n"
    message = f"CppCompileError: C++ compile error\n\nCommand:\ng++ /tmp/cabc.main.cpp\n\nOutput:\n{output}"
    return Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "torch._inductor.exc.InductorError", message)


def test_errors_of_the_c_compiler_are_told_apart_by_its_first_error() -> None:
    first, again = cpp_error("error: 'tmp12' was not declared"), cpp_error("error: 'tmp3' was not declared")
    other = cpp_error("error: no match for 'operator<<'")
    assert signature(first) == signature(again)
    assert signature(first).difference(signature(other)) == "diagnostics"
    said = "InductorError: C++ compile error: 'tmp12' was not declared"
    assert first.headline() == said


@pytest.mark.parametrize("rule", [*BEFORE_ADAPTERS, *AFTER_ADAPTERS], ids=lambda rule: rule.name)
def test_a_masking_rule_does_what_the_documentation_shows(rule: MaskingRule) -> None:
    assert re.sub(rule.pattern.replace("<numbered>", "buf"), rule.replacement, rule.before) == rule.after
    page = (Path(fxminify.__file__).parent / "docs" / "signatures.md").read_text()
    assert f"| `{rule.name}` | `{ascii(rule.before)[1:-1]}` | `{rule.after}` |" in page


ASSERTED = (
    "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in https://docs.nvidia.com/cuda/types.html "
    "for more information.\nCUDA kernel errors might be asynchronously reported at some other API call"
)
PRINTED = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:111: operator(): block: [0,0,0], thread: [1,0,0] Assertion "
    '`-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.'
)


def of_a_device(type_: str, message: str, *frames: Frame, printed: str = "") -> Failure:
    kind, phase = FailureKind.RUNTIME_ERROR, Phase.FORWARD
    return Failure(kind, phase, type_, message, frames=frames, diagnostics=printed)


def test_the_fault_of_a_device_is_one_bug_whichever_call_meets_it() -> None:
    here, there = Frame("torch/cuda/__init__.py", "synchronize"), Frame("torch/fx/graph_module.py", "__call__")
    met = [
        of_a_device("RuntimeError", "CUDA driver error: an illegal memory access was encountered", there),
        of_a_device("torch.AcceleratorError", "CUDA error: an illegal memory access was encountered\nSearch", here),
        of_a_device("RuntimeError", "Triton Error [CUDA]: an illegal memory access was encountered"),
    ]
    assert len({signature(failure) for failure in met}) == 1
    asserted = [of_a_device("torch.AcceleratorError", ASSERTED, frame, printed=PRINTED) for frame in (here, there)]
    assert len({signature(failure) for failure in (*asserted, met[0])}) == 2
    assert "index out of bounds" in signature(asserted[0]).diagnostics


def test_the_headline_of_a_device_assert_is_its_assertion_or_that_there_was_one() -> None:
    headline = of_a_device("torch.AcceleratorError", ASSERTED).headline()
    assert headline == "AcceleratorError: device-side assert triggered"
    assert "index out of bounds" in of_a_device("torch.AcceleratorError", ASSERTED, printed=PRINTED).headline()
