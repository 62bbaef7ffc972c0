"""Backends: how to get one back in another process, how its failures are seen, and the backends we ship."""
