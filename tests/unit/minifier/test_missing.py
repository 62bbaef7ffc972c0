"""What a replay says is missing: a variable that the program sets itself, a file beside the program."""

from __future__ import annotations

import pytest

from fxminify.minifier.oracle.replay import missing
from fxminify.store.failure import Failure, FailureKind, Phase

AGAIN = "minify run repro.db 3 --again"


def failed(type_name: str, message: str) -> Failure:
    return Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, type=type_name, message=message)


def no_file(path: str) -> Failure:
    """As Python raises it."""
    with pytest.raises(FileNotFoundError) as raised:
        open(path)  # noqa: SIM115  it does not open
    return failed("FileNotFoundError", str(raised.value))


def test_a_variable_that_the_program_sets_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IS_SET", "1")
    monkeypatch.delenv("MY_MODE", raising=False)
    assert missing(["IS_SET", "MY_MODE"], [failed("KeyError", "'MY_MODE'")], AGAIN) == [
        "the backend reads MY_MODE, set where it failed and not set in this environment: "
        "set MY_MODE as the program does, then minify run repro.db 3 --again"
    ]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (
            "no config.json",
            "the backend reads the file no config.json of the program's directory, but replays run in an empty "
            "directory: open it by its absolute path, then minify capture the program again",
        ),
        (
            "/nowhere/it's.json",
            f"the file /nowhere/it's.json is missing: put it there, then {AGAIN}",
        ),
    ],
)
def test_a_missing_file_is_named_once(path: str, line: str) -> None:
    assert missing([], [no_file(path), no_file(path)], AGAIN) == [line]


def test_nothing_is_missing() -> None:
    assert missing([], [failed("RuntimeError", "no lowering")], AGAIN) == []
