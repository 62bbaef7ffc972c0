"""Compiles with every backend of the team's package, given in every way there is."""

import functools

import torch
from team import both, impl, objects, plugin, registers  # noqa: F401
from torch._dynamo.backends.common import aot_autograd

registers.register_late()

CASES = {
    "registered": "team_plain",
    "registered_object": plugin.team_plain,
    "indirect": "team_indirect",
    "instance_by_name": "team_instance",
    "late": "team_late",
    "inductor": "inductor",
    "inductor_mode": "inductor",
    "eager": "eager",
    "aot_eager": "aot_eager",
    "ts": "ts",
    "openxla": "openxla",
    "entry": "team_entry",
    "entry_or_module": torch._dynamo.lookup_backend("team_either"),
    "both": "team_both",
    "function": impl.with_option,
    "decorated": impl.decorated,
    "closure_global": impl.made,
    "closure": impl.make(6),
    "instance": objects.Compiler(4),
    "shared": objects.shared,
    "stateless": objects.Stateless(),
    "dataclass": objects.Settings(3, ("a", "b")),
    "class": objects.AsClass,
    "method": objects.shared.method,
    "method_of_anonymous": objects.Stateless().__call__,
    "partial": objects.part,
    "partial_anonymous": functools.partial(impl.decorated, flag=(1, 2.5)),
    "partial_dtype": functools.partial(objects.part, dtype=torch.bfloat16),
    "aot": objects.aot,
    "aot_anonymous": aot_autograd(fw_compiler=objects.forward_compiler, bw_compiler=objects.backward_compiler),
    "aot_decompositions": aot_autograd(
        fw_compiler=objects.forward_compiler,
        decompositions=torch._decomp.get_decompositions([torch.ops.aten.addmm.default]),
    ),
    "unknown": "no_such_backend",
    "option_unwritable": impl.compile_graph,
}
KWARGS = {
    "registered": {"options": {"fuse": True, "names": ["a"]}, "dynamic": True},
    "registered_object": {"dynamic": False},
    "indirect": {"mode": "reduce-overhead"},
    "inductor": {"options": {"max_autotune": False, "epilogue_fusion": True}, "dynamic": True},
    "inductor_mode": {"mode": "max-autotune-no-cudagraphs"},
    "function": {"options": {"tune": impl.tuned, "dtype": torch.float16, "limit": float("inf")}},
    "option_unwritable": {"options": {"stream": open(__file__)}},  # noqa: SIM115
}

if __name__ == "__main__":
    import recorder

    recorder.record(CASES, KWARGS)
