"""What this installation can serve: its version of torch, its kinds of devices, and the backends that can be used.

    python -m fxminify.backends.provenance.serves

prints that as JSON. It is run in a process of its own, because it imports torch.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from . import catalog


def found() -> dict[str, Any]:
    """``torch`` is a version; of ``devices`` the processor is left out."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return {
        "torch": str(torch.__version__),
        "devices": [] if accelerator is None else [accelerator.type],
        "backends": [row["name"] for row in catalog.listing() if not row["needs"] and not row["problem"]],
    }


if __name__ == "__main__":
    print(json.dumps(found()), flush=True)
