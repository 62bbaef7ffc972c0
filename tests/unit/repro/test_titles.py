"""The title of an issue: one line that says the same of one bug in every run."""

import pytest
from indexes import chain, failing

from fxminify.repro_templates.report.phrases import headline, title
from fxminify.store.failure import divergence

PLAIN = "[planted] compile error: RuntimeError: no kernel for <function f> (torch.relu, torch.sin)"


@pytest.mark.parametrize("address", [" at 0x7f2a1c0d5e40", " at 0x55d0c3a2b1f0"])
def test_no_address_of_an_object_stands_in_it(address: str) -> None:
    case, failure = chain(["relu", "sin"]), failing(f"no kernel for <function f{address}>")
    assert title(case, failure) == PLAIN
    assert "0x" not in headline(case, failure)


def test_hyphens_and_arrows_stay() -> None:
    assert title(chain(["sin"]), failing("op-code a->b")).endswith(": RuntimeError: op-code a->b")


def test_one_operator_is_named_and_several_are_not_blamed() -> None:
    error = failing("no kernel")
    assert title(chain(["sin"]), error) == "[planted] torch.sin: compile error: RuntimeError: no kernel"
    assert (
        title(chain(["sin", "cos"]), error) == "[planted] compile error: RuntimeError: no kernel (torch.sin, torch.cos)"
    )
    assert title(chain(["sin", "cos", "tan", "exp"]), error) == "[planted] compile error: RuntimeError: no kernel"
    long = failing(f"no kernel {'x' * 90}")
    assert title(chain(["sin", "cos"]), long).endswith("x")


def test_quotes_of_compilers_are_those_of_a_keyboard() -> None:
    said = title(chain(["sin"]), failing("no \u2018auto x\u2019 \u2014 see \u201cy\u201d \u4e2d"))
    assert said.endswith("RuntimeError: no 'auto x' - see \"y\" ?")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("no kernel", "RuntimeError: no kernel"),
        (f"LoweringException: ValueError: not enough values {'of some kind ' * 4}to unpack",
         f"ValueError: not enough values {'of some kind ' * 4}to unpack"),
        (f"expected size 2==2 at dim=0; expected size {'4==4 ' * 20}at dim=1",
         "RuntimeError: expected size 2==2 at dim=0 ..."),
        ("one of the variables that the gradient needs was changed in place by what the program calls afterwards",
         "RuntimeError: one of the variables that the gradient needs was changed in place by ..."),
        ("x" * 200, "RuntimeError"),
    ],
)  # fmt: skip
def test_the_first_line_of_a_script_has_what_there_is_room_for(error: str, words: str) -> None:
    """The type alone says the same of every bug of a backend."""
    assert headline(chain(["sin"]), failing(error)) == f"planted: compile error: {words}"


def test_the_first_line_of_a_divergence_says_where_it_is() -> None:
    said = "gradient of input 0 is off by 0.296 in 21 of 48 elements"
    found = {"class": "value", "where": "gradient of input 0", "phase": "backward",
             "message": f"{said}: 0.037037 instead of 0.333333 at [0, 0, 3, 3] {'and so on ' * 5}"}  # fmt: skip
    assert headline(chain(["sin"]), divergence(found, [])) == f"planted: divergence in backward: {said}"
