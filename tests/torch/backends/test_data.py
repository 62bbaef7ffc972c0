"""``data``: which values a capture keeps, and what that costs in bytes and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fxminify
from fxminify.backends.capture.settings import Data
from fxminify.store.index import Index

MEGABYTE = 1 << 20
pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def capture(db: Path, fault: str, data: Data) -> Index:
    """What a failing lookup in a table of 4 MB leaves in ``db``."""
    module = torch.nn.Embedding(1000, 1000)
    options: dict[str, Any] = {"fault": fault, "op": "embedding"}
    with fxminify.capturing(str(db), data=data), pytest.raises(Exception, match="planted"):
        torch.compile(module, backend="fxminify_faulty", options=options)(torch.randint(0, 1000, (2000,)))
    return Index.open(str(db), readonly=True)


@pytest.mark.process
@pytest.mark.parametrize(
    ("fault", "data", "kept"),
    [
        ("compile_error", "auto", False),
        ("compile_error", "full", True),
        ("runtime_error", "auto", True),
        ("runtime_error", "none", False),
    ],
)
def test_values_are_kept_where_a_failure_may_depend_on_them(fault: str, data: Data, kept: bool, tmp_path: Path) -> None:
    with capture(tmp_path / "repro.db", fault, data=data) as index:
        (row,) = index.captures.find()
        case = index.captures.case(row.id)
    assert row.provenance.get("data") == (None if kept else "metadata")
    indices, table = sorted(case.tensors, key=lambda t: t.dtype, reverse=True)
    assert (indices.shape, table.shape) == ((2000,), (1000, 1000))
    assert (table.storage is not None) is kept
    if not kept:
        assert indices.init is not None
        assert indices.init["fn"] == "randint"
        assert 0 <= indices.init["low"] < indices.init["high"] <= 1000
    size = sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file())
    assert (size > 3 * MEGABYTE) is kept


def test_an_unknown_setting_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data='some' is not one of auto, full, none"):
        fxminify.install(str(tmp_path / "repro.db"), data="some")  # type: ignore[arg-type]  # on purpose


MEMORY = """
import os, sys, threading, time
import torch, fxminify

torch.set_num_threads(1)
module = torch.nn.Linear(6000, 4000)  # 92 MiB


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def extra(data):
    torch._dynamo.reset()
    options: dict[str, Any] = {"fault": "compile_error", "op": "linear"}
    compiled = torch.compile(module, backend="fxminify_faulty", options=options)
    peak, done = [resident()], threading.Event()

    def watch():
        while not done.wait(0.001):
            peak[0] = max(peak[0], resident())

    before, watcher = peak[0], threading.Thread(target=watch)
    watcher.start()
    with fxminify.capturing(f"{data}.db", data=data):
        try:
            compiled(torch.ones(2, 6000))
        except Exception as error:
            assert "planted" in str(error)
    done.set()
    watcher.join()
    return peak[0] - before


extra("none")  # whatever is imported and kept the first time
print(extra("auto"), extra("full"))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads resident memory where Linux keeps it")
def test_weights_are_copied_once_or_not_at_all(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], cwd=tmp_path, capture_output=True, text=True, check=True)
    auto, full = map(int, done.stdout.split())
    weights = 6000 * 4000 * 4
    assert auto < 0.5 * weights
    assert full < 1.5 * weights
