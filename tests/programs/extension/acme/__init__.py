"""A package that adds a pass, a format and an adapter to fxminify, as docs/extending.md describes."""
