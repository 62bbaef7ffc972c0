"""Cases that may run, for tests of what runs them."""

from __future__ import annotations

from fxminify.minifier.consent import AgreedCase, may_run
from fxminify.store.document.case import Case
from fxminify.store.index import StoredCase


def agreed(case: Case) -> AgreedCase:
    """``case``, as one that this user made."""
    made = may_run(1, StoredCase(case, ours=True))
    assert made is not None
    return made
