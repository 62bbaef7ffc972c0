"""Who can be asked."""

import os
import pty
import subprocess
import sys

import pytest

ASK = "from fxminify.minifier.commands.verbs import ask; print(ask('Run it?'), flush=True)"


@pytest.mark.process
@pytest.mark.parametrize("notebook", [False, True])
def test_nobody_is_asked_at_the_terminal_of_a_notebook(notebook: bool) -> None:
    """IPython runs ``!minify`` at a pseudoterminal that nobody sees."""
    parent, child = pty.openpty()
    environment = {**os.environ, **({"JPY_PARENT_PID": "1"} if notebook else {})}
    process = subprocess.Popen(
        [sys.executable, "-c", ASK],
        stdin=child,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    if not notebook:
        os.write(parent, b"y\n")
    out, err = process.communicate(timeout=120)
    os.close(parent)
    os.close(child)
    assert (out, "Not asked: there is no terminal" in err) == (f"{not notebook}\n", notebook)
