"""Uses operators of the team, operators it defines itself, and one that nobody defines."""

import json

import torch
from team import fakes  # noqa: F401

FACTOR = 2.0


def helper(x):
    return x * FACTOR


@torch.library.custom_op("script::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return helper(x)


@double.register_fake
def _(x):
    return torch.empty_like(x)


library = torch.library.Library("script_lib", "DEF")
library.define("negate(Tensor x) -> Tensor")


@torch.library.impl(library, "negate", "CPU")
def negate(x):
    return -x


@torch.library.register_fake("script_lib::negate")
def _(x):
    return torch.empty_like(x)


result = double(torch.ones(2))
print_nothing = torch.ops.script_lib.negate(result)

if __name__ == "__main__":
    from fxminify.backends.provenance import libraries

    out = {}
    for op in ("team::scale", "team_lib::shift", "team_named::twice", "script::double", "script_lib::negate.default"):
        imports, problems = libraries.imports_for([op, "aten::relu.default", "higher_order::cond"])
        out[op] = {"imports": imports, "problems": problems, "lines": libraries.to_source(imports)}
        out[op]["executes"] = libraries.executes(imports)
    out["all"] = libraries.imports_for(["script::double", "script_lib::negate", "team::scale", "nobody::knows"])
    print(json.dumps(out))
