"""What Inductor finds out about the machine before its first compilation, done once in the zygote.

It probes which vector instructions work by compiling and loading a test in child processes, some seconds in every
process that compiles. The answer is cached in the process, so workers inherit it. With an empty code cache each set of
instructions takes a compiler some seconds, so they are probed side by side. No operator runs here, and the threads that
wait for the compilers have ended when a worker is forked. Leans on the private ``torch._inductor.cpu_vec_isa``.
"""

from __future__ import annotations

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor

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
        from torch._inductor import codecache, cpp_builder, cpu_vec_isa  # noqa: F401  no thread has to import them

        with contextlib.suppress(AttributeError):  # another torch: what follows finds the same out, one by one
            known = set(cpu_vec_isa.x86_isa_checker())
            likely = [isa for isa in cpu_vec_isa.supported_vec_isa_list if known.issuperset(str(isa).split())]
            with ThreadPoolExecutor(max(1, len(likely))) as together:
                list(together.map(bool, likely))
        cpu_vec_isa.valid_vec_isa_list()
