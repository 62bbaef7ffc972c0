"""Why a capture has no script, and what to type then."""

from __future__ import annotations

from pathlib import Path

import pytest
from desks import invoke
from indexes import add, chain, failing

from fxminify.store.index import Index, State


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        (State.PENDING, "", "no script yet (pending); make one: minify run repro.db 1"),
        (State.REDUCING, "", "no script yet (reducing); make one: minify run repro.db 1"),
        (State.BLOCKED, "install tvm", "no script yet: install tvm; then minify run repro.db 1"),
        (State.UNSUPPORTED, "node x", "no script, and cannot have one: node x"),
        (State.EAGER_REFUSES, "eager refuses it, too: E\ncaptured: E",
         "no script, because it is no failure of the backend: eager refuses it, too: E"),
        (State.NOT_REPRODUCED, "captured: E\ndirect, once: passes",
         "no script, because its failure did not show in the replay (captured: E). "
         "What the replay showed: minify show repro.db 1; replay it again: minify run repro.db 1 --again"),
    ],
)  # fmt: skip
def test_a_capture_without_a_script_says_why(tmp_path: Path, state: State, reason: str, said: str) -> None:
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        id = add(index, chain(["sin"]), failing("no sin"))
        index.captures.set_state(id, state, reason)
    for verb in ("repro", "verify"):
        done = invoke(tmp_path, verb, "repro.db", 1)
        assert (done.exit_code, done.stderr) == (2, f"Error: capture 1 has {said}\n")
