"""The verbs of the `minify` command, one file a verb. `cli.py` gathers them.

A verb reads its arguments, calls the module that does the work, and prints with `.console`. It imports both when it
runs, so that `minify --help` is quick.
"""

from __future__ import annotations

from . import (
    ablate,
    backends,
    capture,
    catch,
    copy,
    doctor,
    export,
    formats,
    gc,
    history,
    import_,
    list,
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

#: In the order of a session, which is also the order of ``minify --help``.
VERBS = (
    catch.catch, capture.capture, import_.import_, run.run, work.work, tasks.tasks, serve.serve, tokens.tokens,
    notify.notify, send.send, list.list_, show.show, history.history, repro.repro, report.report, export.export,
    verify.verify, retest.retest, ablate.ablate, gc.gc, copy.copy, upgrade.upgrade, backends.backends,
    passes.passes, formats.formats, doctor.doctor,
)  # fmt: skip
