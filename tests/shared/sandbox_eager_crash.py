"""The observe task, in a process where eager dies."""

import os
from typing import Any
from unittest.mock import patch

from fxminify.minifier.oracle import observe as observing
from fxminify.minifier.oracle.tasks import case_from_json
from fxminify.store import codec


def observe(argument: Any, scratch: Any, mark: Any) -> Any:
    with patch.object(observing, "execute", lambda *args, **kwargs: os.kill(os.getpid(), argument["signal"])):
        return codec.dump(observing.observe(case_from_json(argument["case"]), scratch, "direct", mark))
