"""The ``minify`` command: the verbs of `minifier.commands` and of `service.commands`, gathered.

Exit codes, the same for every verb: 0 done, 1 done but the answer is no (a capture was not minified to a verified
script, a script no longer shows its bug), 2 an error that the message explains, 130 interrupted, 143 and 129 ended by
SIGTERM and SIGHUP, which do what Ctrl-C does. ``capture`` returns the exit code of the program it ran, ``catch`` 1
where a backend failed in it and else that code, ``retest`` and ``verify`` 3 where a script cannot run here.
`minifier.commands.answers` has the table of them.
"""

from __future__ import annotations

import io
import sys

import click

from . import __version__
from .minifier.commands import AGENTS, EVERY_DAY, REPORT, RETEST, UPKEEP
from .minifier.commands.verbs import Verbs
from .service.commands import VERBS as SERVICE

#: The verbs in the groups and the order of ``minify --help`` and of docs/cli.md.
GROUPS = {
    "Every day": EVERY_DAY,
    "Report": REPORT,
    "Retest": RETEST,
    "Service": (*SERVICE, *AGENTS),
    "Upkeep": UPKEEP,
}
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="minify")
def main() -> None:
    """Turn a torch.compile backend failure into a verified, minimal, standalone script.

    \b
    minify catch train.py --epochs 1      run a program and minify its failures

    \b
    or step by step:
    minify capture train.py --epochs 1    run a program and store its failures
    minify run repro.db                   minify every pending failure
    minify repro repro.db 3 -o repro.py   write the script of failure 3

    \b
    Your shell completes verbs and options after this, best in its start-up file:
    eval "$(_MINIFY_COMPLETE=bash_source minify)"   in bash; zsh_source in zsh
    _MINIFY_COMPLETE=fish_source minify | source    in fish
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal has no character for becomes "?"
            stream.reconfigure(errors="replace")


for heading, verbs in GROUPS.items():
    main.add_group(heading, verbs)
