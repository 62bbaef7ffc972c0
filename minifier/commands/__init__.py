"""The verbs of the `minify` command, one file a verb; `service.commands` has the rest. `cli.py` gathers them.

A verb reads its arguments, calls the module that does the work, and prints with `.console`. It imports both when it
runs, so that `minify --help` is quick.
"""

from __future__ import annotations

from . import (
    ablate,
    backends,
    bisect,
    capture,
    catch,
    copy,
    doctor,
    explain,
    export,
    formats,
    gc,
    history,
    hunt,
    import_,
    list,
    mcp,
    passes,
    report,
    repro,
    retest,
    run,
    show,
    upgrade,
    verify,
)  # fmt: skip

EVERY_DAY = (
    catch.catch, capture.capture, bisect.bisect, hunt.hunt, import_.import_, run.run, list.list_, show.show,
    history.history,
)  # fmt: skip
REPORT = (repro.repro, report.report, export.export)
RETEST = (verify.verify, retest.retest, ablate.ablate, explain.explain)
AGENTS = (mcp.mcp,)
UPKEEP = (gc.gc, copy.copy, upgrade.upgrade, doctor.doctor, backends.backends, passes.passes, formats.formats)
