"""Schema versions, each in its own module."""
