"""Failures of the backends fxminify ships, from a program that names them to scripts that need no import for them."""

from __future__ import annotations

import pytest
from desks import Desk

PROGRAM = """
import torch

torch.set_num_threads(1)


def model(x):
    for _ in range(4):
        x = torch.sin(x) + torch.cos(x)
    return (torch.relu(x) * 2).sum()


def run(fault):
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="fxminify_faulty", options={"fault": fault, "op": "relu"})
    compiled(torch.randn(8, requires_grad=True)).backward()


run("wrong_gradient")
chain = {"backends": ["relu_compile_error_TESTING_ONLY", "eager"]}
torch._dynamo.reset()
print(float(torch.compile(model, backend="fxminify_chain", options=chain)(torch.zeros(8))))
run("crash")
"""


@pytest.mark.slow
def test_faults_and_chains_by_name_are_captured_and_minified(desk: Desk) -> None:
    (desk.path / "faults.py").write_text(PROGRAM)
    done = desk.minify("capture", "--check", "faults.py")
    assert done.returncode == 128 + 11
    assert float(done.stdout) > 0  # the chain went on, without a row for a backend that fails on purpose
    assert desk.minify("run", "--no-explain").returncode == 0
    rows = desk.json("list", "repro.db")
    assert [(r["backend"], r["kind"], r["phase"], r["state"], r["nodes_after"]) for r in rows] == [
        ("fxminify_faulty", "divergence", "backward", "verified", 1),
        ("fxminify_faulty", "crash", "forward", "verified", 1),
    ]
    script = desk.minify("repro", "repro.db", rows[1]["id"]).stdout
    assert 'torch.compile(forward, backend="fxminify_faulty", options={"fault": "crash"})' in script
    assert [line for line in script.splitlines() if line.startswith(("import", "from"))] == ["import torch"]
    ablated = desk.json("ablate", "repro.db", rows[1]["id"], "--backend", "fxminify_torchscript")
    assert ablated["enters"] == "the backend fxminify_faulty"
    assert [(row["backend"], row["layer"], row["result"]) for row in ablated["rows"]] == [
        ("eager", "Dynamo", "passes"),
        ("aot_eager", "AOTAutograd", "passes"),
        ("aot_eager_decomp_partition", "decompositions and partitioner", "passes"),
        ("fxminify_faulty", "the backend", "same failure"),
        ("fxminify_torchscript", "", "passes"),
    ]
    issue = desk.minify("repro", "repro.db", rows[1]["id"], "--format", "issue").stdout
    assert "| aot\\_eager | AOTAutograd | passes |\n" in issue
    assert "\nAblation points to the backend fxminify_faulty.\n" in issue
    unknown = desk.minify("ablate", "repro.db", rows[1]["id"], "--backend", "inductr")
    assert unknown.returncode == 2
    assert "no backend is registered as 'inductr'" in unknown.stderr
