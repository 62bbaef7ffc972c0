"""An operator as a program would have it, in a module of its own. The fake kernel rounds down where it rounds up."""

import torch


@torch.library.custom_op("contour::pool", mutates_args=())
def pool(x: torch.Tensor, window: int) -> torch.Tensor:
    return torch.nn.functional.avg_pool1d(x, window, ceil_mode=True)


@pool.register_fake
def _(x: torch.Tensor, window: int) -> torch.Tensor:
    return x.new_empty(x.shape[0], x.shape[1], x.shape[2] // window)
