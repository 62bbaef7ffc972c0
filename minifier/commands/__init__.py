"""The verbs of the `minify` command, one file a verb. `cli.py` gathers them.

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
    notify,
    passes,
    report,
    repro,
    retest,
    run,
    send,
    serve,
    show,
    tasks,
    tokens,
    upgrade,
    verify,
    work,
)  # fmt: skip

#: The verbs in the groups and the order of ``minify --help`` and of docs/cli.md.
GROUPS = {
    "Every day": (
        catch.catch, capture.capture, bisect.bisect, hunt.hunt, import_.import_, run.run, list.list_, show.show,
        history.history,
    ),
    "Report": (repro.repro, report.report, export.export),
    "Retest": (verify.verify, retest.retest, ablate.ablate, explain.explain),
    "Service": (work.work, tasks.tasks, serve.serve, tokens.tokens, notify.notify, send.send, mcp.mcp),
    "Upkeep": (
        gc.gc, copy.copy, upgrade.upgrade, doctor.doctor, backends.backends, passes.passes, formats.formats,
    ),
}  # fmt: skip
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
