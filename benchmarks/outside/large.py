"""A GPT-2 of the wanted size in a backend that is healthy, raises, or computes tanh wrongly.

It knows nothing of fxminify.

    python large.py WIDTH LAYERS DTYPE KIND

Prints a line of JSON: parameters, and seconds of wall and processor time of the compiled call and of a call in eager.
"""

import json
import sys
import time

import torch
import transformers


def after_tanh(gm, function):
    node = next(node for node in gm.graph.nodes if node.target in (torch.tanh, "tanh"))
    with gm.graph.inserting_after(node):
        other = gm.graph.call_function(function, (node, 1.05))
    node.replace_all_uses_with(other, delete_user_cb=lambda user: user is not other)
    gm.recompile()
    return gm.forward


def refused(x, factor):
    raise RuntimeError("no kernel for tanh")


def healthy(gm, inputs):
    return gm.forward


def raises(gm, inputs):
    return after_tanh(gm, refused)


def wrong(gm, inputs):
    return after_tanh(gm, torch.mul)


BACKENDS = {"healthy": healthy, "raises": raises, "wrong": wrong}


def timed(call):
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return [time.perf_counter() - wall, time.process_time() - processor]


def main():
    width, layers, dtype, kind = int(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3]), sys.argv[4]
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    config = transformers.GPT2Config(n_embd=width, n_layer=layers, n_head=16, n_positions=128, use_cache=False)
    model = transformers.GPT2LMHeadModel(config).eval()
    tokens = torch.randint(0, config.vocab_size, (1, 16))
    compiled = torch.compile(model, backend=BACKENDS[kind])
    with torch.no_grad():
        model(tokens)
        eager = timed(lambda: model(tokens))
        try:
            call = timed(lambda: compiled(tokens))
        except RuntimeError:
            call = None
    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters()), "call": call, "eager": eager}))


main()
