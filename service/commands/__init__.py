"""The verbs of the service, one file a verb, as in `minifier.commands`."""

from __future__ import annotations

from . import notify, send, serve, tasks, tokens, work

VERBS = (work.work, tasks.tasks, serve.serve, tokens.tokens, notify.notify, send.send)
