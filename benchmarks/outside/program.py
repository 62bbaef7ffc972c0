"""``python program.py ARCHITECTURE FAULT``: a model whose compilation meets the fault at its rarest operators."""

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


def is_wanted(value):
    if fault not in planted.SILENT:
        return True
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    return fault != "gradient" or value.requires_grad


def count(graph):
    for node in graph.graph.nodes:
        name = planted.name_of(node)
        if name is not None and is_wanted(node.meta.get("example_value", node.meta.get("val"))):
            counted[name] += 1
    return graph


def look(gm, example_inputs):
    if fault not in planted.ATEN:
        return count(gm).forward
    compilers = [lambda graph, inputs: count(graph), lambda graph, inputs: graph]
    forward, backward = compilers if fault == "aot_forward" else compilers[::-1]
    return aot_module_simplified(gm, example_inputs, fw_compiler=forward, bw_compiler=backward)


def run(compiled):
    result = compiled(*inputs)
    if result.requires_grad:
        result.float().square().mean().backward()


run(torch.compile(model, backend=look))
torch._dynamo.reset()
rarest = sorted(counted, key=lambda name: (counted[name], name))[: planted.FAULTS[fault]]
print("planted:", fault, *rarest)
run(torch.compile(model, backend="planted", options={"fault": fault, "operators": rarest}))
