"""A team's package of backends, each found in another way. Every backend prints what it was called with."""
