"""Failures of this backend on their way through fxminify: from a capture to a script of one node and its ONNX model."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from fxminify.backends.capture.hook import capturing
from fxminify.backends.shipped.onnxrt import compile_fx
from fxminify.backends.shipped.onnxrt.report import Island, unsupported
from fxminify.minifier.oracle import tasks
from fxminify.minifier.reporting import illustrations
from fxminify.minifier.reporting.record import make_header
from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.repro_templates.render import render
from fxminify.store.index import Index
from fxminify.store.masking import mask


def erf(x: torch.Tensor) -> torch.Tensor:
    return torch.erf(x.relu()) + 1


def test_a_refused_model_stands_in_the_issue(tmp_path: Path) -> None:
    db, x = str(tmp_path / "repro.db"), torch.ones(2).double()
    with capturing(db), pytest.raises(BackendCompilerFailed, match="UnsupportedOperator"):
        torch.compile(erf, backend=compile_fx, options={"strict": True})(x)
    scratch = Scratch.create()
    with Index.open(db) as index:
        (capture,) = index.captures.find()
        case = index.captures.case(capture.id)
        scratch.put(index.blobs.view(case.storages))
        asked = {**tasks.observe_argument(case, "direct"), "adapter": "onnxruntime"}
        found = illustrations.collect(asked, scratch, lambda phase: None)
        illustrations.keep(index, capture.id, illustrations.Illustrations.from_json(found))
        shown = illustrations.stored(index, capture.id)
        (model,) = shown.items
        assert model.picture.startswith("<svg ")
        assert "NOT_IMPLEMENTED" in model.error
        assert capture.failure is not None
        header = make_header(capture, case, capture.failure, queries=1, timeout=60)
        header = replace(header, illustration_heading=shown.heading)
        fenced = (replace(model, text=f"```\n{model.text}"),)
        blobs = index.blobs.view(case.storages)
    scratch.remove()
    text = render(case, blobs, format="issue", header=replace(header, illustrations=fenced)).text
    _, _, onnx = text.partition("### ONNX models\n")
    folded = "\n<details><summary>What the compiler made of it</summary>\n\n"
    assert onnx.startswith(f"{folded}inference model, refused: NotImplemented:")
    assert "\nerf: float64[2] = pkg.onnxscript.torch_lib::aten_special_erf(relu)\n" in onnx
    assert onnx.partition("###")[0].splitlines().count("````") == 2  # longer than what stands in the text


def test_the_message_begins_with_what_stays_as_a_graph_shrinks() -> None:
    one = Island("erf", "aten.erf.default", ("float64",), "train.py:12: y = torch.erf(x)", "no kernel")
    other = Island("erf_3", "aten.erf.default", ("float64",), "<fxminify graph>:7: erf = torch.erf(a)", "no kernel")
    texts = [unsupported([one, Island("fft", "aten.fft", ("complex64",), "", "no")]), unsupported([other])]
    heads = {mask(text.partition("\n\n")[0]) for text in texts}
    assert heads == {"strict: ONNX Runtime cannot run aten.erf.default (float64): no kernel"}
    assert "  erf = aten.erf.default (float64), from train.py:12: y = torch.erf(x): no kernel\n  fft = " in texts[0]


REFUSED = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        x = torch.erf(self.a(x).relu() * 1.5) + 1
        return self.b(torch.tanh(x).softmax(-1))

model = torch.compile(Net().double(), backend="fxminify_ort", options={"strict": True})
model(torch.randn(2, 4).double()).sum().backward()
"""
WRONG = """\
import torch
import torch.nn.functional as F
from unlisted import unlisted

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Conv3d(2, 4, 3, padding=1), torch.nn.Linear(4, 3)

    def forward(self, x):
        x = F.avg_pool3d(F.relu(self.a(x) * 1.5), 2, divisor_override=3)
        return self.b(torch.tanh(x).mean((2, 3, 4)))

with torch.no_grad():
    torch.compile(Net(), backend=unlisted)(torch.randn(2, 2, 4, 4, 4))
"""
#: A convolution of float64, with arguments that only go together with sizes.
GROUPED = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Conv2d(8, 16, 3, padding=1, groups=4), torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x).relu() * 1.5).flatten(2))

model = torch.compile(Net().double(), backend="fxminify_ort", options={"strict": True})
with torch.no_grad():
    model(torch.randn(2, 8, 2, 2).double())
"""
#: A backend of one's own: this one, which uses every translation.
UNLISTED = """\
from fxminify.backends.shipped.onnxrt import compile_fx, trust

trust.Trust.why_not = lambda self, node: ""

def unlisted(gm, example_inputs):
    return compile_fx(gm, example_inputs)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not entry_points(group="torch_dynamo_backends", name="fxminify_ort"), reason="fxminify is not installed with it"
)
@pytest.mark.parametrize(
    ("program", "call"),
    [
        (REFUSED, "return torch.erf("),
        (WRONG, "return torch.nn.functional.avg_pool3d("),
        (GROUPED, "return torch.conv2d(weight, weight)\n\n\nweight = torch.zeros(1, 1, 1, 1, dtype=torch.float64)\n"),
    ],
    ids=["refused", "wrong", "grouped"],
)
def test_a_failure_becomes_a_verified_script_of_one_node(tmp_path: Path, program: str, call: str) -> None:
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "unlisted.py").write_text(UNLISTED)

    def minify(*arguments: str) -> str:
        command = [sys.executable, "-m", "fxminify", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
        return done.stdout + done.stderr

    assert "captured 1 failure" in minify("capture", "--check", "--db", "repro.db", "program.py")
    assert "→ 1 nodes," in (said := minify("run", "repro.db"))
    assert "3 of 3 fresh runs of the script show it" in said
    issue = minify("repro", "repro.db", "1", "--format", "issue")
    assert call in issue
    assert "### ONNX models\n" in issue
