"""Every kind of graph is stored at one level or the other, or refused with a reason; what is stored comes back to the
bit, here, in another process, and as printed source."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch
from kinds import KINDS
from roundtrip import Outcome, there_and_back

HERE = Path(__file__).parents[2]


def outcomes(source: corpus.Source, folder: Path) -> list[Outcome]:
    """What becomes of every graph of a source, at its first call."""
    found = []

    def backend(gm: torch.fx.GraphModule, _: list[Any]) -> Any:
        shown = False

        def run(*arguments: Any) -> Any:
            nonlocal shown
            if not shown:
                shown = True
                found.append(there_and_back(gm, list(arguments), folder))
            return gm(*arguments)

        return run

    torch._dynamo.reset()
    torch.manual_seed(0)
    source(lambda f, **options: torch.compile(f, backend=backend, **options))
    torch._dynamo.reset()
    return found


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in the process that restores: with more, sums come out in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def restored_elsewhere(folder: Path) -> None:
    """A process that saw no tracing restores all of ``folder`` and computes the same."""
    code = f"import pathlib, roundtrip; print(roundtrip.replay(pathlib.Path({str(folder)!r})))"
    path = os.pathsep.join([str(HERE / "shared"), str(HERE / "programs" / "kinds")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert out.stdout == "[]\n", out.stdout + out.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kinds")


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_stored_and_comes_back(name: str, folder: Path) -> None:
    source, levels = KINDS[name]
    found = outcomes(source, folder)
    assert [o.level for o in found] == levels, [o.refused for o in found]
    assert [o.mismatch for o in found] == [""] * len(levels)
    assert [o.unprinted for o in found] == [""] * len(levels)
    assert all(o.refused for o in found if o.level != "dynamo")


def test_the_kinds_come_back_in_another_process(folder: Path) -> None:
    stored = list(folder.glob("*.json"))
    if not stored:
        pytest.skip("the tests above fill the folder")
    restored_elsewhere(folder)


@pytest.mark.slow
def test_of_the_whole_corpus_every_graph_is_stored(tmp_path: Path) -> None:
    """Dynamo's level suffices for what `corpus.py` holds."""
    pytest.importorskip("transformers")
    found = {name: outcomes(source, tmp_path) for name, source in corpus.SOURCES.items()}
    counted = [o for all_of_it in found.values() for o in all_of_it]
    assert len(counted) >= 75
    assert {name: o.refused for name, all_of_it in found.items() for o in all_of_it if not o.level} == {}
    assert {name: o.mismatch for name, all_of_it in found.items() for o in all_of_it if o.mismatch} == {}
    restored_elsewhere(tmp_path)
