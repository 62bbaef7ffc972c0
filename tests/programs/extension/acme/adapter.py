"""What Acme knows about torch's backend for TorchScript."""

import os
from pathlib import Path

from fxminify.backends.adapters import BackendAdapter
from fxminify.store.signature_rules import SignatureRules


class TorchScript(BackendAdapter):
    backends = ("ts",)
    signature = SignatureRules(masks=((r"cannot be used as a value", "<acme: no value>"),))
    environment_variables = ("ACME_*",)
    worker_environment = {"ACME_WORKER": "1"}  # noqa: RUF012  the base class declares its type

    def warm(self) -> None:
        """Write down that a worker has been prepared, and with which environment."""
        if "ACME_WORKER" in os.environ:
            Path(os.environ["ACME_WARM"]).write_text(os.environ["ACME_WORKER"])


adapter = TorchScript()
