"""Hunts: programs of suites run under a backend, each in a worker, and judged as `--check` judges them."""
