"""The service: `minify work`, `minify serve` and what belongs to them. Only `cli.py` imports it."""
