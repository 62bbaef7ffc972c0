"""The oracle: one case is observed in a worker, and the answer becomes a verdict about the failure that is followed."""
