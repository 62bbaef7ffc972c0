"""A program whose backend is not installed: what each verb says."""

from __future__ import annotations

from desks import Desk

PROGRAM = """
import torch

torch.compile(lambda x: x.sin(), backend="tvm")(torch.randn(3))
"""
WHY = "the backend tvm needs the module tvm, which is not installed here (ImportError: Please install apache-tvm"


def test_a_backend_that_is_not_installed_is_blocked(desk: Desk) -> None:
    (desk.path / "program.py").write_text(PROGRAM)
    done = desk.minify("catch", "program.py")
    said = done.stderr.splitlines()[-1]
    assert (done.returncode, said.startswith(f"minify: {WHY}")) == (1, True)
    assert said.endswith("; install it: pip install apache-tvm; nothing to minify")
    (row,) = desk.json("run", "repro.db")
    assert (row["state"], row["reason"].startswith(WHY)) == ("blocked", True)
    for form in ("script", "issue"):
        shown = desk.minify("repro", "repro.db", 1, "--format", form)
        assert (shown.returncode, f"Error: capture 1 has no script: {WHY}" in shown.stderr) == (2, True)
