"""The verbs of the `minify` command, a module a family. `cli.py` gathers them.

A verb reads its arguments, calls the module that does the work, and prints; it imports that module when it runs, so
that `minify --help` is quick.
"""

from __future__ import annotations

from .formats import formats
from .installation import backends, doctor, passes
from .intake import capture, import_
from .reading import history, list_, repro, show, verify
from .reducing import ablate, run
from .regression import retest
from .reporting import report

#: In the order of a session, which is that of ``minify --help``.
VERBS = (
    capture, import_, run, list_, show, history, repro, report, verify, retest, ablate, backends, passes, formats,
    doctor,
)  # fmt: skip
