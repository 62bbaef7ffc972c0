"""A minimal case with a control-flow operator is a program that Dynamo accepts: bodies return and change no operand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BACKEND = """\
from torch._dynamo import register_backend

OPERATORS = ("cond", "while_loop", "map_impl", "scan", "flex_attention")


@register_backend
def straight(gm, example_inputs):
    for node in gm.graph.nodes:
        if (name := getattr(node.target, "__name__", "")) in OPERATORS:
            raise NotImplementedError(f"cannot lower {name}")
    return gm.forward
"""
PROGRAMS = {
    "cond": "torch.cond(x.sum() > 0, lambda x, y: (x + y).relu(), lambda x, y: x * y.cos(), (x, x.sin()))",
    "while_loop": "torch.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, torch.tanh(z * 0.5 + x)), (0, x * 2))[1]",
    "map_impl": "map(lambda row: (row * 2).exp() + y, x)",
    "scan": "scan(lambda carry, row: (carry * 0.5 + row, carry.sin()), y, x)[0]",
    "flex_attention": "flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s * 2, s - i))",
}


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("cond", "while_loop", "map_impl", "scan", "flex_attention")
    ],
)
def test_what_is_left_is_a_program(operator: str, tmp_path: Path) -> None:
    (tmp_path / "straight.py").write_text(BACKEND)
    (tmp_path / "program.py").write_text(
        "import torch, straight\n"
        "from torch._higher_order_ops.map import map\nfrom torch._higher_order_ops.scan import scan\n"
        "from torch.nn.attention.flex_attention import flex_attention\n"
        f"def model(x, y, q):\n    x = x.exp()\n    out = {PROGRAMS[operator]}\n    return out.abs().sum() + x.mean()\n"
        "with torch.no_grad():\n"
        "    torch.compile(model, backend='straight')(torch.randn(3, 4), torch.randn(4), torch.randn(1, 2, 128, 16))\n"
    )

    def fxminify(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fxminify", *args]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert fxminify("capture", "program.py").returncode == 1
    done = fxminify("run", "--no-explain", "--runs", "2", "--json")
    rows = json.loads(done.stdout)
    assert [row["state"] for row in rows] == ["verified"], done.stderr
    assert len(json.loads(fxminify("list", "--json").stdout)) == 1  # no candidate was another failure
    script = fxminify("repro", "repro.db", "1").stdout
    assert operator.removesuffix("_impl") in script
    for other in ("eager", "aot_eager"):
        (tmp_path / "other.py").write_text(script.replace('backend="straight"', f'backend="{other}"'))
        accepted = subprocess.run(
            [sys.executable, "other.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert accepted.returncode == 0, accepted.stderr
