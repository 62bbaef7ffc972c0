"""A backend with one fault, as a team would register it. It knows nothing of fxminify.

``torch.compile(model, backend="planted", options={"fault": FAULT, "operators": [NAME, ...]})``; `FAULTS` says what each
fault does and how many operators of the graph it takes.
"""

import os
import time

import torch
from torch._dynamo import register_backend
from torch._functorch.aot_autograd import aot_module_simplified

#: Operators that the smallest graph with the fault needs.
FAULTS = {
    "compile": 1,  # refuses one operator
    "pair": 2,  # refuses a graph that has two operators
    "rank": 1,  # refuses one operator on a tensor of two or more dimensions
    "runtime": 1,  # raises when the compiled graph runs
    "value": 1,  # one operator is off by a hundredth
    "nan": 1,  # one operator returns NaN
    "dtype": 1,  # one operator returns float64
    "gradient": 1,  # the gradient through one operator is doubled
    "aot_forward": 1,  # refuses one ATen operator of the forward graph
    "aot_backward": 1,  # refuses one ATen operator of the backward graph
    "abort": 1,  # the process dies
    "hang": 1,  # never returns
}
#: Faults that only a comparison with eager shows.
SILENT = {"value", "nan", "dtype", "gradient"}
#: Faults in the graphs of AOTAutograd.
ATEN = {"aot_forward", "aot_backward"}


def name_of(node):
    """The name of what a node computes, None for what computes nothing."""
    if node.op == "call_method":
        return node.target
    if node.op != "call_function" or "getitem" in str(node.target):
        return None
    return str(node.target) if isinstance(node.target, torch._ops.OpOverload) else node.target.__name__


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Wrong(torch.fx.Interpreter):
    def __init__(self, gm, fault, operators):
        super().__init__(gm)
        self.fault, self.operators = fault, operators

    def run_node(self, node):
        result = super().run_node(node)
        if (
            name_of(node) not in self.operators
            or not isinstance(result, torch.Tensor)
            or not result.is_floating_point()
        ):
            return result
        if self.fault == "value":
            return result * 1.01 + 0.01
        if self.fault == "nan":
            return result * float("nan")
        if self.fault == "dtype":
            return result.double()
        return Doubled.apply(result)


def refuse(gm, fault, operators):
    """Raise, die or hang where the graph has what the fault needs."""
    found = [node for node in gm.graph.nodes if name_of(node) in operators]
    if {name_of(node) for node in found} != set(operators):
        return
    if fault == "rank":
        values = [n.meta.get("example_value", n.meta.get("val")) for node in found for n in node.all_input_nodes]
        if not any(isinstance(value, torch.Tensor) and value.dim() >= 2 for value in values):
            return
    if fault == "abort":
        os.abort()
    while fault == "hang":
        time.sleep(0.1)
    raise NotImplementedError(f"planted: no {fault} rule for {' and '.join(operators)}")


@register_backend
def planted(gm, example_inputs, *, options):
    fault, operators = options["fault"], options["operators"]
    if fault in ATEN:

        def compiler(at):
            def compile(graph, inputs):
                if fault == at:
                    refuse(graph, fault, operators)
                return graph

            return compile

        return aot_module_simplified(
            gm, example_inputs, fw_compiler=compiler("aot_forward"), bw_compiler=compiler("aot_backward")
        )
    if fault in SILENT:
        return Wrong(gm, fault, operators).run
    if fault != "runtime":
        refuse(gm, fault, operators)
        return gm.forward

    def run(*inputs):
        refuse(gm, fault, operators)
        return gm.forward(*inputs)

    return run
