"""The failure that is looked for is found by the words that tell bugs apart, wherever and however it was run."""

from dataclasses import replace

import pytest

from fxminify.store.failure import Failure, FailureKind, Frame, Phase, divergence
from fxminify.store.matching import Difference, FailureMatcher
from fxminify.store.signature import Match

ERROR = Failure(
    FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "cannot lower relu", frames=(Frame("be.py", "f"),)
)
CRASH = Failure(FailureKind.CRASH, Phase.FORWARD, signal=8)


def said(message: str, diagnostics: str = "") -> Failure:
    return replace(ERROR, message=message, diagnostics=diagnostics)


def differs(example: Failure, failure: Failure, *, strict: bool = False) -> str | None:
    found = FailureMatcher((example,), strict=strict).difference(failure)
    return None if found is None else found.part


def test_what_a_capture_does_not_know_is_not_compared() -> None:
    seen = replace(ERROR, diagnostics="error: diagnosis")
    assert differs(ERROR, seen) is None
    assert differs(ERROR, seen, strict=True) == "diagnostics", "a replay knows what was printed"
    assert differs(seen, ERROR) is None, "a program may write more than its backend, and the message tells"
    assert differs(seen, ERROR, strict=True) == "diagnostics"
    generic = said("compilation failed", "error: diagnosis")
    assert differs(generic, said("compilation failed", "error: another")) == "diagnostics"
    placed = replace(CRASH, frames=(Frame("be.py", "run"),))
    assert differs(CRASH, placed) is None
    assert differs(placed, replace(CRASH, frames=(Frame("be.py", "other"),))) == "origin"
    assert differs(ERROR, replace(ERROR, frames=())) == "origin"


def test_the_stack_of_modules_that_a_message_quotes_is_no_difference() -> None:
    first = 'Not implemented for op_type=\'Log\', node=input: "add"\noutput: "log"'
    captured = said(f'{first}\nmetadata {{ key: "scope" value: "L[\'fn\'].1" }}')
    replayed = said(first.replace('"add"', '"x"'))
    assert differs(captured, replayed) is None
    assert differs(replayed, captured) is None
    assert differs(captured, said(first.replace("Log", "Exp"))) == "message"


def test_lines_after_the_first_tell_bugs_apart_where_all_runs_are_of_one_kind() -> None:
    replayed = said("pass FuseOps aborted\nmissing rule tanh\nsee the manual")
    assert differs(replayed, said("pass FuseOps aborted\nmissing rule gelu\nsee the manual"), strict=True) == "message"
    assert differs(replayed, said("pass FuseOps aborted\nmissing rule tanh"), strict=True) is None
    assert differs(replayed, said("pass FuseOps aborted\nmissing rule gelu\nsee the manual")) is None


def test_a_smaller_graph_lacks_fewer_operators_of_a_list() -> None:
    captured = said("Unsupported function types ['diff', 'embedding']")
    assert differs(captured, said("Unsupported function types ['embedding', 'diff']")) is None
    assert differs(captured, said("Unsupported function types ['diff']")) is None
    assert differs(captured, said("Unsupported function types ['neg']")) == "message"
    assert differs(captured, said("Unsupported function types ['diff', 'neg']")) == "message"
    assert differs(said("Unsupported function types ['diff']"), captured) == "message"
    bullets = said("These operators are not supported:\n  - aten.cdist\n  - aten.diff")
    assert differs(bullets, said("These operators are not supported:\n  - aten.diff")) is None
    assert differs(bullets, said("These operators are not supported:\n  - aten.roll")) == "message"


def test_the_diagnosis_may_stand_among_others_in_any_order() -> None:
    first, second = "error: failed to legalize 'a.foo'\n", "error: failed to legalize 'a.bar'\n"
    captured = said("compilation failed", first)
    assert differs(captured, said("compilation failed", second + first)) is None
    assert differs(captured, said("compilation failed", second)) == "diagnostics"


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (
            Difference("message", "no rule for <n> of relu", "no rule for <n> of sin"),
            'another message: "sin" in the place of "relu"',
        ),
        (Difference("diagnostics", "error: no", ""), 'another diagnostics: nothing in the place of "error: no"'),
        (Difference("message", "no rule", "no rule here"), 'another message: "here" in the place of nothing'),
        (Difference("cause"), "another cause"),
    ],
)
def test_where_two_texts_begin_to_differ_is_quoted(difference: Difference, words: str) -> None:
    assert difference.words() == words


def test_a_failure_that_only_the_origin_would_find() -> None:
    matcher = FailureMatcher((ERROR,))
    assert matcher.agrees_in_origin(said("cannot lower sin"))
    assert not matcher.agrees_in_origin(ERROR)
    assert not matcher.agrees_in_origin(replace(ERROR, message="cannot lower sin", type="KeyError"))
    assert not FailureMatcher((ERROR,), Match.ORIGIN).agrees_in_origin(said("cannot lower sin"))


def test_the_part_of_a_failure_that_is_looked_for_is_returned() -> None:
    value = {"class": "value", "where": "output 0", "phase": "forward", "message": "output 0: off"}
    alias = {"class": "alias", "where": "output 0", "phase": "forward", "message": "output 0: aliases input 0"}
    found = FailureMatcher((divergence(alias, []),)).find(divergence(value, [alias]))
    assert found is not None
    assert found.detail["class"] == "alias"
    assert FailureMatcher((ERROR,)).find(CRASH) is None


def test_a_regular_expression_replaces_the_comparison() -> None:
    matcher = FailureMatcher((ERROR,), error_regex="aten[.]foo")
    assert matcher.shows(said("anything", "error: aten.foo"))
    assert matcher.difference(ERROR) == Difference("text")
