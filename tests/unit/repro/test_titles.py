"""The title of an issue: one line that says the same of one bug in every run."""

import pytest
from indexes import chain, failing

from fxminify.repro_templates.report.phrases import headline, title

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
