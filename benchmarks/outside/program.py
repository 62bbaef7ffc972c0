"""``python program.py ARCHITECTURE FAULT``: a model whose compilation meets the fault at its rarest operators.

A fault that only shows in results is put where it changes them: not at a result that is never used, or of which
only the sign matters.
"""

import sys
from collections import Counter

import planted
import torch
import transformers
from tiny_models import build
from torch._functorch.aot_autograd import aot_module_simplified

architecture, fault = sys.argv[1:]
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
model, inputs = build(architecture)
counted = Counter()
shown = set()


def value_of(node):
    return node.meta.get("example_value", node.meta.get("val"))


def is_wanted(node):
    if fault == "rank":
        return any(isinstance(t := value_of(n), torch.Tensor) and t.dim() >= 2 for n in node.all_input_nodes)
    value = value_of(node)
    if fault not in planted.SILENT:
        return True
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    return fault != "gradient" or value.requires_grad


def count(graph):
    for node in graph.graph.nodes:
        name = planted.name_of(node)
        if name is not None and is_wanted(node):
            counted[name] += 1
    return graph


def rarest():
    wanted = shown if fault in planted.SILENT else counted
    return sorted(wanted, key=lambda name: (counted[name], name))[: planted.FAULTS[fault]]


def results(function, given):
    """The outputs and the gradients of a call, which changes nothing that ``given`` holds."""
    copies = [t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t for t in given]
    outputs = [t for t in function(*copies) if isinstance(t, torch.Tensor)]
    roots = [t.float().square().sum() for t in outputs if t.requires_grad]
    leaves = [t for t in copies if isinstance(t, torch.Tensor) and t.requires_grad]
    if not roots or not leaves:
        return outputs
    return [*outputs, *torch.autograd.grad(sum(roots), leaves, allow_unused=True)]


def is_shown(gm, given, name):
    try:
        actual, expected = results(planted.Wrong(gm, fault, [name]).run, given), results(gm.forward, given)
        if fault == "dtype":  # what is computed in float64 and then converted only has fewer rounding errors
            return [t.dtype for t in actual if t is not None] != [t.dtype for t in expected if t is not None]
        torch.testing.assert_close(actual, expected)
    except (AssertionError, RuntimeError):
        return True
    return False


def look(gm, example_inputs):
    if fault in planted.ATEN:
        compilers = [lambda graph, inputs: count(graph), lambda graph, inputs: graph]
        forward, backward = compilers if fault == "aot_forward" else compilers[::-1]
        return aot_module_simplified(gm, example_inputs, fw_compiler=forward, bw_compiler=backward)
    before = set(counted)
    count(gm)
    if fault not in planted.SILENT:
        return gm.forward

    def watched(*given):
        names = sorted(counted.keys() - before, key=lambda name: (counted[name], name))
        shown.update([name for name in names if is_shown(gm, given, name)][:1])
        return gm.forward(*given)

    return watched


def run(compiled):
    result = compiled(*inputs)
    if result.requires_grad:
        result.float().square().sum().backward()


run(torch.compile(model, backend=look))
torch._dynamo.reset()
names = rarest()
if not names:
    sys.exit("no operator can have this fault")
print("planted:", fault, *names)
run(torch.compile(model, backend="planted", options={"fault": fault, "operators": names}))
