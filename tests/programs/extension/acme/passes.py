"""A pass that drops the inner half of the nodes at once, and writes down that it was asked."""

import os
from pathlib import Path

from fxminify.minifier.candidate.patch import Patch
from fxminify.minifier.passes import Pass, each


def propose(view, step):
    if step:
        return None
    with Path(os.environ["ACME_ASKED"]).open("a") as file:
        file.write(f"{len(view.compute)}\n")
    quarter = len(view.compute) // 4
    inner = frozenset(view.compute[quarter:-quarter]) if quarter else frozenset(view.compute[1:])
    return each((Patch(drop=inner),)) if inner else None


MIDDLE = Pass("acme-middle", "Drops the inner half of the nodes.", propose)
