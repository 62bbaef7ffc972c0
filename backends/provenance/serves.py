"""The capabilities of this installation: its versions, its kinds of devices, and the usable backends.

    python -m fxminify.backends.provenance.serves

prints that as JSON. It is run in a process of its own, because it imports torch.
"""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

import torch

from . import catalog


def found() -> dict[str, Any]:
    """``torch`` is a version; of ``devices`` the processor is left out; ``backends`` has the packages that they come in
    besides torch, by name, with their versions."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    rows = [row for row in catalog.listing() if not row["needs"] and not row["problem"]]
    return {
        "torch": str(torch.__version__),
        "devices": [] if accelerator is None else [accelerator.type],
        "backends": {row["name"]: _package(row["distribution"]) for row in rows},
    }


def _package(name: str) -> dict[str, str]:
    try:
        return {name: metadata.version(name)} if name else {}
    except metadata.PackageNotFoundError:
        return {}


if __name__ == "__main__":
    print(json.dumps(found()), flush=True)
