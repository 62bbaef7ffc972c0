"""The kernels in a module that Inductor generates, in C++ and in Triton."""

from __future__ import annotations

from fxminify.backends.shipped.inductor_code import parts

MODULE = """
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()

cpp_fused_acosh_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r\'\'\'
#include "/home/me/cache/cpp_prefix.h"
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
{
    out_ptr0[0] = std::acosh(in_ptr0[0]);
}
\'\'\')

triton_poi_fused_sin_0 = async_compile.triton('triton_poi_fused_sin_0', \'\'\'
import triton
from torch._inductor.runtime import triton_heuristics

@triton_heuristics.pointwise(size_hints={'x': 4}, filename=__file__)
@triton.jit
def triton_poi_fused_sin_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
\'\'\', device_str='cuda')

async_compile.wait(globals())
unrelated = dict(a="extern C")

class Runner:
    def call(self, args):
        arg0_1, = args
        cpp_fused_acosh_0(arg0_1, arg0_1)
        return (arg0_1, )
"""


def test_kernels_come_first_and_without_what_each_of_them_has() -> None:
    cpp, triton, call = parts(MODULE)
    assert (cpp.name, triton.name) == ("kernel cpp_fused_acosh_0", "kernel triton_poi_fused_sin_0")
    assert cpp.text.startswith('extern "C"  void  kernel(')
    assert cpp.text.endswith("}\n")
    assert triton.text.startswith("@triton.jit\ndef triton_poi_fused_sin_0(")
    assert "/home/me" not in cpp.text + triton.text + call.text
    assert call.text.startswith("def call(self, args):\n    arg0_1, = args\n")


def test_a_module_without_kernels_has_its_calls() -> None:
    (call,) = parts("def call(args):\n    return (extern_kernels.mm(*args),)\n")
    assert call.text == "def call(args):\n    return (extern_kernels.mm(*args),)\n"
