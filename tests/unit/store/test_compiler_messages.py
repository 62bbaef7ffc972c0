"""Two runs of one bug are one bug and two bugs are two, for all messages of the corpus, without exception."""

from collections import Counter
from itertools import permutations

import compiler_messages
import pytest
from compiler_messages import Bug

from fxminify.store.diagnosis import without_warnings
from fxminify.store.matching import FailureMatcher
from fxminify.store.signature import signature

BUGS = compiler_messages.bugs()


def test_the_corpus_has_more_than_a_hundred_messages_of_more_than_ten_compilers() -> None:
    assert len({bug.compiler for bug in BUGS}) > 10
    assert sum(len(bug.runs) for bug in BUGS) > 100
    assert [bug.name for bug in BUGS if len(bug.runs) < 2 or not (bug.why and bug.source)] == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_runs_of_one_bug_are_one_bug(bug: Bug) -> None:
    for one, other in permutations(bug.runs, 2):
        assert FailureMatcher((one,)).difference(other) is None
        assert signature(one) == signature(other)


def test_two_bugs_are_two_bugs() -> None:
    digests = Counter(digest for bug in BUGS for digest in {signature(run).digest for run in bug.runs})
    assert [bug.name for bug in BUGS if digests[signature(bug.runs[0]).digest] > 1] == []
    matchers = {bug.name: FailureMatcher(bug.runs[:1]) for bug in BUGS}
    alike = [
        (one.name, other.name)
        for one, other in permutations(BUGS, 2)
        if one.compiler == other.compiler and matchers[one.name].shows(other.runs[-1])
    ]
    assert alike == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_list_shows_the_words_that_tell_a_bug_from_the_others(bug: Bug) -> None:
    """Bugs of one compiler have different headlines, unless it says no more than where it raised."""
    others = {other.runs[0].headline() for other in BUGS if other is not bug and other.compiler == bug.compiler}
    assert bug.runs[0].headline() not in others


GCC = """\
Output:
a.main.cpp: In function 'void kernel(float*)':
a.main.cpp:50:26: error: conflicting declaration 'auto x'
   50 |   auto x = y;
      |        ^
a.main.cpp:48:26: note: previous declaration as 'int x'
   48 |   int x = y;
In file included from torch/vec512.h:15,
                 from a.h:1:
torch/vec512_int.h: In instantiation of 'void shift()':
torch/vec512_int.h:2074:27:   required from here
torch/vec512_int.h:1866:7: warning: overflow in conversion [-Woverflow]
 1866 |   0x80,
      |   ^~~~
torch/vec512_int.h:1867:7: note: in this
 1867 |   0x80,
a.main.cpp:60:1: error: expected '}'
   60 | ;
b.cpp:1:1: warning: unused
    1 | int x;
"""


def test_warnings_of_a_compiler_are_left_out_with_their_context() -> None:
    assert without_warnings(GCC).splitlines() == [
        "Output:",
        "a.main.cpp: In function 'void kernel(float*)':",
        "a.main.cpp:50:26: error: conflicting declaration 'auto x'",
        "   50 |   auto x = y;",
        "      |        ^",
        "a.main.cpp:48:26: note: previous declaration as 'int x'",
        "   48 |   int x = y;",
        "a.main.cpp:60:1: error: expected '}'",
        "   60 | ;",
        "(2 warnings left out)",
    ]
    assert without_warnings("no warning: here\nFile a.py") == "no warning: here\nFile a.py"
