"""The cells of this process, if it is a notebook's kernel or IPython: their sources and their names.

IPython compiles each cell under a file name of its own, which says nothing to a person and is another one in another
session. It is never imported here: where it runs, it is loaded.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

#: What a cell is called where IPython cannot say its number.
_UNNUMBERED = "In[?]"
_CELL = re.compile(r"[/\\]ipykernel_\d+[/\\]\d+\.py$|^<ipython-input-")


def shell() -> Any:
    """Return the interactive shell of this process, or None outside of one."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get_ipython is None else get_ipython()


def cells() -> tuple[str, ...]:
    """The sources of the cells that were run, in this order, as Python: IPython has translated what is not."""
    manager = getattr(shell(), "history_manager", None)
    return tuple(str(text) for text in getattr(manager, "input_hist_parsed", ()))


def notebook() -> str:
    """The name of the notebook, without its directory; ``notebook`` where it is not known. Empty without a shell."""
    running = shell()
    if running is None:
        return ""
    named = (running.user_ns.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME"))
    found = next((n for n in named if isinstance(n, str) and n.endswith(".ipynb")), "notebook")
    return re.split(r"[/\\]", found)[-1]


def is_cell(file: str) -> bool:
    """Whether ``file`` is the name under which IPython compiled a cell."""
    return _CELL.search(file) is not None


def cell(file: str) -> str:
    """``In[3]`` for the name under which IPython compiled a cell; empty if it is another file."""
    if not is_cell(file):
        return ""
    named = getattr(getattr(shell(), "compile", None), "format_code_name", None)
    found = None if named is None else named(file)
    return str(found[1]) if found else _UNNUMBERED
