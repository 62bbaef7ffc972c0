"""The places that an agent may name: paths below the root of the server."""

from __future__ import annotations

from pathlib import Path

from ...store.errors import StoreError


class OutsideRoot(StoreError):
    """A path leads outside the root. Nothing was read or run."""


def inside(root: Path, given: str) -> str:
    """Return ``given``, relative to ``root``, as an absolute path. Links are followed before the check.

    Raises `OutsideRoot`.
    """
    if "://" in given or "\0" in given or not given:
        raise OutsideRoot(f"{given!r} is no path below {root}: name a file there")
    path = Path(root, given).resolve()
    if not path.is_relative_to(root):
        raise OutsideRoot(f"{given} is outside {root}: name a path below it, or start `minify mcp --root DIR`")
    return str(path)
