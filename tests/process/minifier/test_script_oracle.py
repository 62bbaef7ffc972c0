"""Where the workers and the script disagree, the script decides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BACKEND = '''\
import sys

from torch._dynamo import register_backend


@register_backend
def moody(gm, example_inputs):
    """Fails on relu; outside of fxminify's workers only where there is a sin as well."""
    names = [getattr(node.target, "__name__", "") for node in gm.graph.nodes]
    if any("relu" in n for n in names):
        if "fxminify.minifier.oracle.observe" in sys.modules or any("sin" in n for n in names):
            raise RuntimeError("cannot lower relu")
    return gm.forward
'''
PROGRAM = """\
import moody
import torch


def model(x):
    x = torch.cos(torch.sin(x) * 2)
    return torch.relu(x + 1).exp().sum()


torch.compile(model, backend="moody")(torch.randn(3))
"""


def minify(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fxminify", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_reduction_goes_on_with_the_script_as_the_oracle(tmp_path: Path) -> None:
    (tmp_path / "moody.py").write_text(BACKEND)
    (tmp_path / "program.py").write_text(PROGRAM)
    assert minify("capture", "program.py", cwd=tmp_path).returncode == 1
    done = minify("run", "--no-explain", "--json", "--runs", "2", cwd=tmp_path)
    (row,) = json.loads(done.stdout)
    assert (row["state"], row["nodes_after"]) == ("verified", 2), done.stderr
    history = json.loads(minify("history", "repro.db", "1", "--json", cwd=tmp_path).stdout)
    # Only the script of the start showed the failure. The way through `torch.compile` was not walked.
    assert (history["reduction"], history["config"]["entry"]) == (2, "script")
    script = minify("repro", "repro.db", "1", cwd=tmp_path).stdout
    assert "torch.sin" in script
    assert "torch.relu" in script
