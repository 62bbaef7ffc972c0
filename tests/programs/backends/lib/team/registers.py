"""Registers, under a name of its own, what another module holds."""

from torch._dynamo import register_backend

from . import impl, objects

register_backend(compiler_fn=impl.compile_graph, name="team_indirect")
register_backend(name="team_instance")(objects.shared)


def register_late() -> None:
    """Not run by an import: a name registered here is gone elsewhere, the function is not."""
    register_backend(compiler_fn=impl.decorated, name="team_late")
