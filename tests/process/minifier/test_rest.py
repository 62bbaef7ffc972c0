"""A failure behind the failure: the captured graph is asked once more without the culprit."""

from __future__ import annotations

from pathlib import Path

import faulty_backends  # noqa: F401  registers the backends
import pytest
import torch

import fxminify
from fxminify.minifier.reporting.gathering import gather
from fxminify.store.index import Index, State


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "others", "words"),
    [
        (
            lambda x: torch.relu(torch.sin(torch.cos(x))).sum(),
            ["cannot lower sin"],
            "fails in another way without torch.relu: NotImplementedError: cannot lower sin",
        ),
        (lambda x: torch.relu(torch.cos(torch.relu(x))).sum(), [], "passes without torch.relu"),
    ],
)
def test_another_failure_behind_it_is_a_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: object, others: list[str], words: str
) -> None:
    """The message names the operator, so the search asks about nothing but it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "repro.db"
    torch._dynamo.reset()
    with fxminify.capturing(path, check=False), pytest.raises(Exception, match="cannot lower relu"):
        torch.compile(function, backend="cannot_lower")(torch.randn(40))  # type: ignore[call-overload]
    (result,) = fxminify.minify(path, options=fxminify.MinifyOptions(replays=1, runs=1, explain=False))
    assert (result.state, result.capture.nodes_after) == (State.VERIFIED, 1)
    with Index.open(str(path), readonly=True) as index:
        found = [row for row in index.captures.find() if row.parent == 1]
        assert gather(index, 1).rest == words
    assert [row.headline.partition(": ")[2] for row in found] == others
    assert [row.id for row in found] == list(result.others)
