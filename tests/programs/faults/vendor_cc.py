"""An installed package that makes backends: `make_backend(level)` returns a closure."""

import torch


class VendorError(Exception):
    pass


def make_backend(level=1):
    def backend(gm, inputs):
        if level > 1 and any(node.target is torch.cumsum for node in gm.graph.nodes):
            raise VendorError(f"vendor: O{level} cannot scan")
        return gm.forward

    return backend
