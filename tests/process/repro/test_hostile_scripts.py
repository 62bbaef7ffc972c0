"""Captures that mean harm: what is handed out is text to read and code that was meant, whatever they hold.

Each document that the reader of the store must refuse is rendered here all the same, as if it had got through, and
random captures are filled with text that breaks out of something: comments, docstrings, strings, Markdown, JSON.
"""

from __future__ import annotations

import ast
import copy
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import careful
import pytest
from hostile_documents import KEY, PLANTED, REFUSED, document

from fxminify.backends.adapters import Illustration
from fxminify.backends.provenance.installed import Installed, Package
from fxminify.backends.running import ambient
from fxminify.minifier.oracle.tasks import case_from_json
from fxminify.repro_templates.anonymous import anonymous
from fxminify.repro_templates.context import Header
from fxminify.repro_templates.formats import OURS
from fxminify.repro_templates.render import render
from fxminify.repro_templates.source.expressions import Unprintable
from fxminify.store.document.case import Case
from fxminify.store.failure import Failure, FailureKind, Frame, Phase

BLOBS = {KEY: bytes(8)}
EAGER = {"name": "eager", "how": "registered", "target": "eager"}
BREAKS = (
    '"""', "'''", "\\", '\\"', "\n", "\r", "\x0c", "\x85", "\u2028", "\u2029", "\x00", "\x1b]0;owned\x07", "\x1b[31m",
    "\u202e", "\uff45val", "t\u043erch", "{{ c }}", "{% raw %}", "{#", "#}", "```", "~~~", "`", "</details>", "-->",
    "<img src=x onerror=1>", "![x](http://e.x/p.png)", "[x](javascript:1)", "@everyone", "#1", "|", "*/", "$(id)",
    f"\n{PLANTED}()\n", f'"""\n{PLANTED}()\n"""', f"');{PLANTED}()#", "../../x", "C:\\Users\\me\\x", "-rf", "--", "%s",
    "/home/me/secret/model.py", "x" * 300, "HF_TOKEN=hf_abcdefghijklmnopqrstuvw", "\ud800", "e\u0301", "\t", "\x7f",
)  # fmt: skip
HEADER = Header(Failure(FailureKind.RUNTIME_ERROR, Phase.FORWARD, "RuntimeError", "boom"), torch="2.13.0", nodes=3)

#: What a test of PyTorch's style imports besides.
UNITTEST = frozenset({"unittest", "TestCase", "run_tests"})


def faults(case: Case, header: Header) -> list[str]:
    """What is wrong with any of the formats; a case without a source form has none."""
    found: list[str] = []
    for format in OURS:
        try:
            text = render(case, BLOBS, format=format, header=header).text
        except (SyntaxError, UnicodeError):
            raise
        except Exception:  # noqa: BLE001  whatever is refused is not handed out
            continue
        isolated = format == "bisect" or (format in ("pytest", "upstream-test") and "import subprocess" in text)
        if format in ("issue", "comment"):
            found += careful.markdown_faults(text)
        elif format == "notebook":
            found += careful.notebook_faults(text)
        else:
            found += careful.faults(
                text, driver=isolated, modules=UNITTEST if format == "upstream-test" else frozenset()
            )
        found += [f"{format} holds {word}" for word in ("/home/me", "\\Users\\me", "hf_abc", "\x1b") if word in text]
    return found


@pytest.fixture
def deep_calls() -> Iterator[None]:
    """No depth is refused by Python's own limit alone: libraries raise it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("deep_calls")
@pytest.mark.parametrize("name", REFUSED)
def test_a_document_that_got_through_prints_nothing_harmful(name: str) -> None:
    try:
        case = case_from_json({"tensors": [], "context": {}, "backend": {}, "imports": [], "backward": False,
                               "compare": False, "torch": "", **_whole(REFUSED[name])})  # fmt: skip
    except Exception:  # noqa: BLE001  not even a case
        return
    assert faults(replace(case, backend=EAGER), HEADER) == []


def _whole(doc: Any) -> Any:
    doc = copy.deepcopy(doc)
    doc["graph"] = {"attrs": {}, "training": False, **doc["graph"]}
    return doc


def test_random_captures_print_nothing_harmful() -> None:
    for seed in range(60):
        case, header = capture(random.Random(seed))
        assert faults(case, header) == [], seed
        assert faults(*anonymous(case, header)) == [], f"{seed}, renamed"


def capture(draw: random.Random) -> tuple[Case, Header]:
    """A small graph with hostile text wherever a document has text, and a header with as much of it."""

    def text() -> str:
        return "".join(
            draw.choice(("word", "L_x_", "3", " ", draw.choice(BREAKS))) for _ in range(draw.randrange(1, 6))
        )

    def string() -> str:
        """Text that is printed as code: it is as private as the program that it is from."""
        return "".join(c for c in text() if c not in "/\\_")

    def name(seldom: str) -> str:
        return text() if draw.random() < 0.1 else seldom

    nodes: list[dict[str, Any]] = [
        {"name": name("x"), "op": "placeholder", "target": name(draw.choice(["L_x_", "L_self_modules_a_b_", "x"])),
         "meta": {"stack": text(), "module": text(), "dtype": name("float32"), "shape": [name("s0"), 2]}},
    ]  # fmt: skip
    for i in range(draw.randrange(1, 4)):
        ref = {"ref": nodes[-1]["name"]}
        node: dict[str, Any] = draw.choice([
            {"op": "call_function", "target": {"fn": name("torch.sin")}, "args": [ref]},
            {"op": "call_function", "target": {"op": name("aten::add.Tensor")}, "args": [ref, ref]},
            {"op": "call_method", "target": name("cos"), "args": [ref], "kwargs": {name("out"): name("a")}},
            {"op": "call_function", "target": {"fn": "torch.Tensor.to"}, "args": [ref, {"device": name("cpu")}]},
            {"op": "get_attr", "target": name("a"), "args": []},
            {"op": "call_function", "target": {"fn": "torch.einsum"}, "args": [string(), ref]},
        ])  # fmt: skip
        nodes.append({**node, "name": name(f"n_{i}"), "meta": {"dtype": "float32", "shape": [2, text()]}})
    nodes.append(
        {"name": "output", "op": "output", "target": "output", "args": [{"tuple": [{"ref": nodes[-1]["name"]}]}]}
    )
    doc = document(nodes, attrs={"a": {"value": string()}, name("b"): {"value": 1}})
    backend = {"name": text(), "how": "registered", "target": string(), "options": {"dict": [[string(), string()]]}}
    contexts: list[Any] = [
        {}, {"autocast": {name("cpu"): {"dtype": name("bfloat16")}}}, {"default_dtype": name("float64")},
        {"config": {name("torch._inductor.config"): {name("fallback_random"): text()}}}, {"sdp": {name("math"): False}},
        {"matmul_precision": text()}, {"threads": text()}, {text(): text()},
    ]  # fmt: skip
    case = case_from_json({
        "context": draw.choice(contexts), "imports": [], "backward": False,
        "compare": False, **_whole(doc), "torch": text(), "backend": backend,
    })  # fmt: skip
    kind = draw.choice(list(FailureKind))
    detail = {"class": draw.choice(["value", "nan", text()]), "where": text(), "error": draw.choice(["1.0", text()]),
              "eager_error": "nan", "others": [{"class": "value", "error": "2", "eager_error": "1", "where": text()}],
              "dtype": text()}  # fmt: skip
    failure = Failure(
        kind, draw.choice(list(Phase)), draw.choice(["RuntimeError", text()]), text() + "\n" + text(),
        causes=((text(), text()),), frames=(Frame(text(), text(), 3),), diagnostics="error: " + text(),
        signal=draw.choice([None, 11]) if kind is FailureKind.CRASH else None,
        detail=detail if kind is FailureKind.DIVERGENCE else {},
    )  # fmt: skip
    installed = Installed(
        text(), text(), text(), (Package("onnx", "1.0", "onnx==1.0"),), (text(),), ((text(), text()),)
    )
    header = Header(
        failure, text(), text(), text(), text(), text(), nodes=9, queries=3, runs=text(), replays=text(),
        layers=((text(), text(), text()),), enters=text(), matters=(text(), text()),
        passing_variant=(text(), "- " + text()),
        illustrations=(Illustration(text(), text(), error=text()),), illustration_heading=text(), installed=installed,
        tentative=text(), steps=((text(), 3, 1),),
        first={"node": text(), "position": text(), "of": 3, "error": text(), "eager_error": "1"},
    )  # fmt: skip
    return case, header


@pytest.mark.parametrize(
    "context",
    [
        {"default_dtype": f"float32)\n{PLANTED}("},
        {"default_dtype": "load"},
        {"autocast": {"cpu": {"dtype": f"bfloat16), {PLANTED}("}}},
        {"autocast": {"cpu": {"dtype": "bfloat16", "cache": f"{PLANTED}()"}}},
        {"sdp": {f"math_sdp(False)\n{PLANTED}()\n#": False}},
        {"config": {f"os\n{PLANTED}()\n#": {}}},
        {"config": {"antigravity": {"a": 1}}},
        {"config": {"torch._inductor.config": {f"a = {PLANTED}()\nb": 1}}},
        {"config": {"torch._inductor.config": {"debug_dir_root": "/home/me"}}},
        {"config": {"torch._inductor.config": {"__class__": 1}}},
        {"threads": PLANTED},
        {"deterministic": {}},
        {"rng": {"cpu": {"target": {"fn": "os.system"}}}},
    ],
)
def test_a_context_that_holds_code_is_neither_printed_nor_applied(context: Any) -> None:
    case = case_from_json({**_whole(document()), "context": context, "backend": EAGER, "imports": [],
                                   "backward": False, "compare": False, "torch": ""})  # fmt: skip
    for format in OURS:
        with pytest.raises(Unprintable, match="the context holds no valid"):
            render(case, BLOBS, format=format, header=HEADER)
    with pytest.raises(ValueError, match="the context holds no valid"), ambient.applied(context):
        raise AssertionError


def test_the_checks_find_what_they_are_for() -> None:
    assert list(careful.faults("import socket\n")) == ["imports socket"]
    assert "reads the name exec" in list(careful.faults("exec('1')"))
    assert "reads __class__" in list(careful.faults("x = 1\nx.__class__"))
    assert "calls torch.load" in list(careful.faults("import torch\ntorch.load('x')"))
    assert "calls subprocess.run" in list(careful.faults("import subprocess\nsubprocess.run([])"))
    assert list(careful.markdown_faults("a <img> b"))
    assert list(careful.markdown_faults("```\nx\n"))
    assert list(careful.markdown_faults("hello @someone and #12"))
    assert list(careful.markdown_faults("`a <img>`\n````\n```\n<b>\n````\n")) == []


@pytest.mark.parametrize("format", OURS)
def test_no_format_carries_code_as_data(format: str) -> None:
    case, header = capture(random.Random(1))
    case = replace(case, backend=EAGER)
    text = render(case, BLOBS, format=format, header=replace(header, failure=HEADER.failure)).text
    for word in ("pickle", "base64", "torch.load", "exec(", "eval(", "marshal"):
        assert word not in text
    if format in ("script", "notebook"):
        code = text if format == "script" else "\n".join(
            "".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "code")  # fmt: skip
        assert "subprocess" not in {n.names[0].name for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Import)}
