"""The layer over accelerators, as far as a process without one can show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import fxminify
from fxminify.backends.capture.graph_snapshot import GraphSnapshot, Taken
from fxminify.backends.capture.journal import Journal
from fxminify.backends.running import devices
from fxminify.backends.running.execution import same_states
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index
from fxminify.store.live.build import build
from fxminify.store.signature import signature

_ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:111: operator(): block: [{},0,0], thread: [{},0,0] Assertion "
    '`-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.'
)


def test_the_cpu_and_meta_are_no_accelerators() -> None:
    assert devices.used([torch.ones(1), torch.ones(1, device="meta"), 3]) == []


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_without_an_accelerator_none_is_present_and_none_is_dead() -> None:
    assert not devices.present("cuda:0")
    assert devices.initialised() == ""
    assert devices.dead() == ""


def test_a_generator_is_restored_also_after_an_exception() -> None:
    before = devices.generators([])

    def draw() -> None:
        with devices.kept_generators([]):
            torch.rand(3)
            raise KeyError

    with pytest.raises(KeyError):
        draw()
    assert same_states(before, devices.generators([]))


def test_a_device_that_raises_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nfor debugging")

    monkeypatch.setattr(devices, "initialised", lambda: "cuda")
    monkeypatch.setattr(torch.accelerator, "synchronize", fails)
    assert devices.dead() == "cuda cannot be used any more: CUDA error: an illegal memory access was encountered"


def asserted(block: int, thread: int, assertion: str = _ASSERTION) -> Failure:
    message = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"
    printed = assertion.format(block, thread)
    kind, phase = FailureKind.RUNTIME_ERROR, Phase.FORWARD
    return Failure(kind, phase, "torch.AcceleratorError", message, diagnostics=printed)


def test_a_device_assert_is_known_by_its_assertion_and_not_by_block_and_thread() -> None:
    other = asserted(0, 0, "/t/c.py:9: unknown: block: [{},0,0], thread: [{},0,0] Assertion `x < 3` failed.")
    assert signature(asserted(0, 3)) == signature(asserted(7, 96))
    assert "index out of bounds" in signature(asserted(0, 3)).diagnostics
    assert signature(other) != signature(asserted(0, 3))


def test_bytes_are_no_part_of_the_signature_of_a_lack_of_memory() -> None:
    said = "CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of {} GiB of which {} GiB is free."
    made = [
        signature(Failure(FailureKind.OUT_OF_MEMORY, Phase.FORWARD, "torch.OutOfMemoryError", said.format(*numbers)))
        for numbers in ((2, 79.1, 0.5), (16384, 139.8, 138.9))
    ]
    assert made[0] == made[1]


class DeadDevice:
    """A device that fails in a call of ``backend`` and cannot be read afterwards, as far as the CPU can act it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._failed = False
        self._take = GraphSnapshot.case
        monkeypatch.setattr(devices, "dead", lambda: "cuda cannot be used any more" if self._failed else "")
        monkeypatch.setattr(GraphSnapshot, "case", lambda *args, **kwargs: self._case(*args, **kwargs))

    def _case(self, *args: Any, **kwargs: Any) -> Taken:
        if self._failed:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self._take(*args, **kwargs)

    def backend(self, gm: fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        def run(*args: torch.Tensor) -> None:
            self._failed = True
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        return run


def test_a_call_that_leaves_the_device_dead_is_stored_with_the_values_that_were_written_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, given = str(tmp_path / "r.db"), torch.randn(5)
    (tmp_path / "journal" / "blobs").mkdir(parents=True)
    fxminify.install(db, journal=Journal(str(tmp_path / "journal")))
    try:
        with pytest.raises(RuntimeError, match="illegal memory access"):
            torch.compile(lambda x: x.relu() + 1, backend=DeadDevice(monkeypatch).backend)(given)
    finally:
        fxminify.uninstall()
    with Index.open(db) as index:
        case = index.captures.case(1)
        _, (restored,) = build(case, index.blobs.view(case.storages))
    assert torch.equal(restored, given)


def test_without_a_journal_the_sentence_names_what_writes_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = DeadDevice(monkeypatch)
    with fxminify.capturing(str(tmp_path / "r.db")), pytest.raises(RuntimeError, match="illegal memory access"):
        torch.compile(lambda x: x.relu() + 1, backend=device.backend)(torch.randn(5))
    assert "no values were written ahead of the call, as minify capture does" in capsys.readouterr().err
