"""The observe task, in a process where eager dies."""

import os
from unittest.mock import patch

from fxminify.minifier.oracle import observe as observing
from fxminify.minifier.oracle.observe import Mark
from fxminify.minifier.oracle.tasks import case_from_json
from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.store import codec
from fxminify.store.document.case import Json


def observe(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    with patch.object(observing, "execute", lambda *args, **kwargs: os.kill(os.getpid(), argument["signal"])):
        return codec.dump(observing.observe(case_from_json(argument["case"]), scratch, "direct", mark))
