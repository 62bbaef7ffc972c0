"""One failure after the other, none of which stops the program."""

import team
import torch
import torch.distributed
from torch.nn.attention.flex_attention import flex_attention
from torch.testing._internal.distributed.fake_pg import FakeStore

X = torch.linspace(-1, 1, 16).reshape(4, 4)


def attempt(function, backend, *inputs, backward=False, calls=1, **kwargs) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    try:
        compiled = torch.compile(function, backend=backend, **kwargs)
        for _ in range(calls):
            out = compiled(*inputs)
        if backward:
            out.sum().backward()
    except Exception as exc:  # noqa: BLE001  whatever it is, the program goes on
        print(type(exc).__name__, str(exc).splitlines()[0])
    else:
        print("fine", out.sum().item())


def in_script(gm, inputs):
    if any(n.target is torch.erf for n in gm.graph.nodes):
        raise RuntimeError("erf in a backend of the script")
    return gm.forward


def chain(x):
    x = torch.relu(x)
    for _ in range(20):
        x = torch.cos(x) * 1.5
    return torch.sigmoid(x)


def two_bugs(x):
    for _ in range(6):
        x = torch.cos(x) + 0.5
    x = torch.sin(x)
    for _ in range(6):
        x = torch.cos(x) + 0.5
    return torch.relu(x) + 1


def products(x, w):
    for _ in range(3):
        x = torch.matmul(torch.relu(torch.matmul(torch.cos(x), w)), w.t())
    return x


attempt(lambda x: torch.sin(x + 1) * 2, "row01", X)
attempt(lambda x: torch.sigmoid(torch.cos(x)) * 2, team.row04, X.clone().requires_grad_(), backward=True)
attempt(lambda x: torch.relu(torch.relu(torch.cos(torch.relu(torch.relu(x) + 1)))), team.row05, X)
attempt(lambda x: torch.erf(torch.cos(x)) + 1, in_script, X)
attempt(lambda x: torch.exp(torch.cos(x)) + 1, team.Compiler("exp").lower, X)
attempt(lambda x: torch.tanh(x * 3) - 1, "row06", X, options={"fuse": True, "level": 2})
attempt(lambda x: torch.sin(x * 3) - 1, "row07", X)
attempt(lambda x: torch.ops.team.double(x * 3) - 1, "row09", X)
attempt(two_bugs, "row10", X)
attempt(products, "row11", torch.rand(4, 3), torch.rand(3, 5))
attempt(lambda x: torch.cos(x), "row12", X)
for _ in range(20):
    attempt(lambda x: torch.cos(torch.sin(x * 3)) - 1, "row14", X)
attempt(lambda x: torch.erf(torch.relu(x) * 3) - 1, "row16", X.clone().requires_grad_())
attempt(chain, "row18", X)
attempt(lambda x: torch.cos(x).view(x.shape[0] * x.shape[1]) + 1, "row20", X, dynamic=True)
attempt(lambda x: torch.exp(torch.cos(x)) + 1, "row27", X, calls=3)


def inference(x):
    return torch.matmul(torch.relu(x), x.t()) + 1


def branches(x):
    return torch.cond(x.sum() > 0, lambda x: torch.sin(x) + 1, lambda x: torch.cos(x), (x * 2,)) - 1


def attention(q):
    return flex_attention(q * 2, q, q, score_mod=lambda score, b, h, i, j: score + (i - j)) + 1


def gathered(x):
    x = torch.sin(x)
    torch.distributed.all_reduce(x)
    return x * 2


class Buffered(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.arange(1000.0))

    def forward(self, x):
        return torch.cos(x).sum() + self.steps * 2


with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    attempt(inference, "row29", X)
torch.set_default_dtype(torch.float64)
attempt(lambda x: torch.sigmoid(x * 2) + 1, "row29_double", X)
torch.set_default_dtype(torch.float32)
attempt(branches, "row30_cond", X)
attempt(attention, "row30_flex", torch.linspace(-1, 1, 256).reshape(1, 1, 16, 16))
layers = torch.nn.Sequential(torch.nn.GroupNorm(2, 4), torch.nn.SiLU(), torch.nn.Upsample(scale_factor=2))
attempt(layers.eval(), "row31", torch.linspace(-1, 1, 16).reshape(1, 4, 2, 2))
attempt(Buffered(), "row32", X)
attempt(lambda x: torch.nn.functional.one_hot(x, 9) * 2, "row33", torch.tensor([1, 8, 0, 2]))
torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
attempt(gathered, "row35", X)
