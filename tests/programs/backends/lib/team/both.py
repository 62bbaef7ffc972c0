"""An entry point names this backend and the module registers it too: torch's first look-up by name then fails."""

from torch._dynamo import register_backend


@register_backend
def team_both(gm, inputs, **kwargs):
    print("team_both", kwargs)
    return gm.forward
