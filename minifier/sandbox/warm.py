"""What Inductor finds out about the machine before its first compilation, done once in the zygote.

It probes which vector instructions work by compiling and loading a test in child processes, some seconds in every
process that compiles. The answer is cached in the process, so workers inherit it. No operator runs and no thread
starts here. Leans on the private ``torch._inductor.cpu_vec_isa.valid_vec_isa_list``.
"""

from __future__ import annotations

import contextlib
import sys

#: Imported only by what is going to generate C++.
_CODEGEN = "torch._inductor.codegen.cpp"
_done = False


def warm() -> None:
    """Probe the processor if this process knows Inductor's C++ code generator. Safe to call again."""
    global _done
    if _done or _CODEGEN not in sys.modules:
        return
    _done = True
    with contextlib.suppress(Exception):  # no compiler, say: the workers meet it again, where it is a failure
        from torch._inductor import cpu_vec_isa

        cpu_vec_isa.valid_vec_isa_list()
