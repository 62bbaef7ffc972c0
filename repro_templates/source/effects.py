"""What running a graph may change besides its results: its inputs, and the random generator.

Read from names alone, and on the safe side: a script that compares with eager gives each run its own inputs when
anything in the graph may write in place, and seeds again when anything may draw random numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...store.document.case import Graph, Node, every_node, tag

_IN_PLACE_OPERATORS = frozenset(
    {"iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift",
     "setitem", "delitem", "setattr"}
)  # fmt: skip
#: Functions that update the statistics they are given unless told that they do not train.
_UPDATES_STATISTICS = frozenset(
    {"batch_norm", "instance_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
     "cudnn_batch_norm", "fused_moving_avg_obs_fake_quant", "embedding_renorm_", "set_", "resize_"}
)  # fmt: skip
_KNOWN = frozenset({"aten", "prims", "prim", "quantized_decomposed", "_c10d_functional"})
_RANDOM = re.compile(
    r"(?:rand|randn|randint|randperm)(?:_like)?_?|(?:\w*_)?(?:dropout|dropout1d|dropout2d|dropout3d)_?|normal_?|"
    r"bernoulli_?|multinomial|poisson|binomial|rrelu_?|rrelu_with_noise\w*|gumbel_softmax|uniform_?|exponential_|"
    r"cauchy_|geometric_|log_normal_|random_|_sample_dirichlet|_standard_gamma|fractional_max_pool[23]d\w*|"
    r"inductor_random|inductor_randint|native_dropout|_fused_dropout|manual_seed|seed|"
    r"multi_head_attention_forward|lstm|gru|rnn_tanh|rnn_relu"
)


def functions(graph: Graph) -> Iterator[tuple[Node, str, str]]:
    """``(node, namespace, bare name)`` of every call of ``graph`` and its sub-graphs."""
    for node in every_node(graph):
        if node.op == "call_method":
            yield node, "method", str(node.target)
        elif node.op == "call_module":
            yield node, "module", str(node.target)
        elif node.op == "call_function" and (kind := tag(node.target)):
            text = str(node.target[kind])
            namespace, _, rest = text.rpartition("::")
            name = rest.partition(".")[0] if kind in ("op", "packet") else rest.rpartition(".")[2]
            yield node, namespace or kind, name


def mutates(graph: Graph) -> bool:
    """Whether a run may write into a tensor that existed before it."""
    return any(_writes(node, namespace, name) for node, namespace, name in functions(graph))


def draws(graph: Graph) -> bool:
    """Whether a run may draw from the random generator."""
    return any(_draws(node, name) for node, _, name in functions(graph))


def _draws(node: Node, name: str) -> bool:
    if "scaled_dot_product" in name:  # random with a dropout probability, the only positional float
        return node.kwargs.get("dropout_p", 0.0) != 0.0 or any(type(a) is float and a for a in node.args)
    if name == "dropout" and (False in node.args[2:3] or node.kwargs.get("training") is False):
        return False
    return _RANDOM.fullmatch(name) is not None


def _writes(node: Node, namespace: str, name: str) -> bool:
    if namespace == "module" or name in _UPDATES_STATISTICS or name in _IN_PLACE_OPERATORS:
        return True
    if name.endswith("_") and not name.endswith("__"):
        return True
    if "out" in node.kwargs or node.kwargs.get("inplace", False) is not False:
        return True
    if namespace in ("method", "fn", "hop"):
        return any(value is True for value in node.args) and name in ("relu", "dropout", "hardtanh", "elu", "silu")
    return namespace not in _KNOWN or node.target.get("op", "").endswith(("out", "_out"))
