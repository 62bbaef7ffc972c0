"""Custom operators of the team: by `custom_op`, by `Library`, and by name."""

import torch
from torch.library import Library


@torch.library.custom_op("team::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


library = Library("team_lib", "DEF")
library.define("shift(Tensor x) -> Tensor")


@torch.library.impl(library, "shift", "CPU")
def shift(x):
    return x + 1


torch.library.define("team_named::twice", "(Tensor x) -> Tensor")


@torch.library.impl("team_named::twice", "cpu")
def twice(x):
    return x * 2
