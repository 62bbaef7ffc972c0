"""A failure whose captured graph was minimal already, or that went on from its last step, is handed out as others."""

from __future__ import annotations

import json
from pathlib import Path

import indexes
import pytest
from desks import Desk

from fxminify.minifier.reporting import record
from fxminify.repro_templates.formats import formats
from fxminify.store.index import Index, State, StepInfo

ONE = indexes.chain(["sin"])
#: Reductions without a step, with one, and with one that a reduction without steps went on from.
STEPS = {"no step": [0], "one step": [1], "from the last step": [1, 0]}


@pytest.fixture(params=STEPS)
def minimal(desk: Desk, request: pytest.FixtureRequest) -> Desk:
    with Index.open(str(desk.db), create=True) as index:
        id = indexes.add(index, ONE, indexes.failing("no sin"))
        for number, steps in enumerate(STEPS[request.param]):
            reduction = index.reductions.begin(id, {"from_step": number})
            for step in range(steps):
                index.reductions.add_step(reduction.id, StepInfo(step + 1, "nodes", "one", 1, 1, queries=1), ONE, {})
            if not steps:
                index.reductions.accept(reduction.id, ONE, {})
            index.reductions.finish(reduction.id, queries=1, nodes_before=1, nodes_after=1, seconds=0.1)
        index.repros.save(id, "script", "raise SystemExit(1)\n", verified=3, runs=3, log="", case=ONE, blobs={})
        capture = index.captures.get(id)
        header = record.make_header(capture, ONE, capture.to_show(), queries=1, timeout=10.0, runs="3 of 3", replays="")
        record.keep(index, id, header)
        index.captures.set_state(id, State.VERIFIED)
    return desk


@pytest.mark.parametrize("name", formats())
def test_every_format(minimal: Desk, name: str) -> None:
    done = minimal.invoke("repro", "repro.db", 1, "--format", name, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["text"]


def test_every_report(minimal: Desk) -> None:
    page, bundle = Path("page.html"), Path("out.zip")
    for arguments in (["history"], ["show"], ["report", "-o", page], ["report", "--bundle", bundle],
                      ["report", "--to", "gh"], ["report", "--what-is-inside"]):  # fmt: skip
        verb, *rest = arguments
        done = minimal.invoke(verb, "repro.db", 1, *rest)
        assert done.exit_code == 0, (arguments, done.output)
        assert done.output
    assert (minimal.path / page).stat().st_size > 1000
    assert (minimal.path / bundle).stat().st_size > 1000
