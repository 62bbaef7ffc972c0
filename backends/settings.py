"""What a person can say about capture: one `Settings` travels from the command line or `install` to every region.

A setting is a field here, a keyword of `install`, `capturing` and `capture` (`fxminify.backends.hook`), and an option
of `minify capture`. Processes of a supervised program get them as JSON. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """``check``: also compare the first calls of each compiled graph with eager."""

    check: bool = False
