"""``python -m fxminify.benchmarks.backends``: latency and compile time of `fxminify_ort` beside eager and Inductor.

One process, one thread each, the contenders in turn, so that a busy machine is busy for all of them; what is measured
is time of the processor, not of the clock, and the least of many calls counts. The last table is what a call costs
above the bare ``InferenceSession.run`` on the same model.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from fxminify.backends.shipped.onnxrt import Storage, compile_fx

Contender = Callable[[], Any]


def perceptron() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return layers, (torch.randn(32, 64),)


def convolutions() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    first = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*first, *second, nn.Linear(32, 10)), (torch.randn(4, 3, 32, 32),)


class Logits(nn.Module):
    """A transformer as a function of tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out = self.model(input_ids=tokens)
        found: torch.Tensor = out.logits if "logits" in out else out.last_hidden_state
        return found


def gpt2() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    size: dict[str, Any] = {"n_layer": 4, "n_head": 4, "n_embd": 256, "n_positions": 128, "vocab_size": 512}
    drop: dict[str, Any] = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    config = GPT2Config(use_cache=False, bos_token_id=0, eos_token_id=0, **size, **drop)
    return Logits(GPT2LMHeadModel(config)), (torch.randint(0, 512, (4, 64)),)


def bert() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import BertConfig, BertModel

    size: dict[str, Any] = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 256}
    drop: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(intermediate_size=1024, vocab_size=512, **size, **drop)
    return Logits(BertModel(config)), (torch.randint(0, 512, (4, 64)),)


MODELS = {"perceptron": perceptron, "convolutions": convolutions, "gpt2": gpt2, "bert": bert}


def step(model: nn.Module, function: Any, inputs: tuple[Any, ...], train: bool) -> Contender:
    """Return a contender that runs an inference, or a forward and backward pass."""

    def inference() -> None:
        with torch.no_grad():
            function(*inputs)

    def training() -> None:
        model.zero_grad()
        function(*inputs).sum().backward()

    return training if train else inference


def fastest(contenders: dict[str, Contender], rounds: int) -> dict[str, float]:
    """The least milliseconds of each, called in turn."""
    least = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, call in contenders.items():
            start = time.process_time_ns()
            call()
            least[name] = min(least[name], (time.process_time_ns() - start) / 1e6)
    return least


def compare(name: str, train: bool, rounds: int, inductor: bool) -> None:
    """Print the row of one model."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.train(train)
    threads = {"intra_op_num_threads": 1}
    kinds: dict[str, dict[str, Any]] = {"ort": {"backend": compile_fx, "options": {"session_options": threads}}}
    if not train:
        kinds["frozen"] = {"backend": compile_fx, "options": {"session_options": threads, "freeze": True}}
    if inductor:
        kinds["inductor"] = {"backend": "inductor"}
    contenders = {"eager": step(model, model, inputs, train)}
    compiling = {}
    for kind, given in kinds.items():
        torch._dynamo.reset()  # or the second contender would be given the first one's graph
        other = copy.deepcopy(model)
        contenders[kind] = step(other, torch.compile(other, **given), inputs, train)
        start = time.perf_counter()
        contenders[kind]()
        compiling[kind] = time.perf_counter() - start
    least = fastest(contenders, rounds)
    cells = [f"{least[k]:.3f} ({least['eager'] / least[k]:.1f}x)" if k in least else "" for k in COLUMNS]
    first = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in compiling.items())
    print(f"| {name}{' training' if train else ''} | {' | '.join(cells)} | {first} |", flush=True)


COLUMNS = ("eager", "ort", "frozen", "inductor")


def overhead(rounds: int) -> None:
    """Print what a call of the compiled graph costs above the session's own call on the same model, in microseconds."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from fxminify.backends.shipped.onnxrt import decompositions
    from fxminify.backends.shipped.onnxrt.compiler import Compilation
    from fxminify.backends.shipped.onnxrt.options import OnnxrtOptions

    for name in MODELS:
        torch.manual_seed(0)
        model, inputs = MODELS[name]()
        storage, threads = Storage(), {"intra_op_num_threads": 1}
        state = {**dict(model.eval().named_parameters()), **dict(model.named_buffers())}

        def call(values: dict[str, Any], *given: Any, model: nn.Module = model) -> Any:
            return (torch.func.functional_call(model, values, given),)

        with torch.no_grad():
            table = decompositions.table("default")
            graph = make_fx(call, decomposition_table=table, tracing_mode="fake")(state, *inputs)
            run = Compilation(graph, "inference", OnnxrtOptions(storage=storage, session_options=threads), {}).run()
            if len(storage) != 1:
                print(f"| {name} | islands | |")
                continue
            stored = storage[0]
            given = [t.detach() for t in [*state.values(), *inputs]]
            holders = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
            taken = {i.name for i in stored.session.get_inputs()}
            feeds = {n: t.numpy() for n, t in zip(holders, given, strict=True) if n in taken}
            bare = partial(stored.session.run, None, feeds)
            least = fastest({"ours": partial(run, given), "bare": bare}, rounds)
        print(f"| {name} | {least['bare'] * 1e3:.0f} | {(least['ours'] - least['bare']) * 1e3:+.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fxminify.benchmarks.backends", description=__doc__.split(":")[1])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=200, help="calls of each contender (default 200)")
    parser.add_argument("--no-inductor", action="store_true", help="Inductor takes most of the time to compile")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | " + " | ".join(COLUMNS) + " | seconds of the first call |\n|---|---|---|---|---|---|")
    for name in args.models.split(","):
        for train in (False, True):
            compare(name, train, args.rounds, not args.no_inductor)
    print("\n| model | InferenceSession.run, us | this backend's call, us |\n|---|---|---|")
    overhead(args.rounds)


if __name__ == "__main__":
    main()
