"""The title of an issue: one line that says the same of one bug in every run."""

import pytest
from indexes import chain, failing

from fxminify.repro_templates.report.phrases import headline, title

PLAIN = "[planted] torch.sin: compile error: RuntimeError: no kernel for <function f>"


@pytest.mark.parametrize("address", [" at 0x7f2a1c0d5e40", " at 0x55d0c3a2b1f0"])
def test_no_address_of_an_object_stands_in_it(address: str) -> None:
    case, failure = chain(["relu", "sin"]), failing(f"no kernel for <function f{address}>")
    assert title(case, failure) == PLAIN
    assert "0x" not in headline(case, failure)


def test_hyphens_and_arrows_stay() -> None:
    assert title(chain(["sin"]), failing("op-code a->b")).endswith(": RuntimeError: op-code a->b")
