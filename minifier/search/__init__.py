"""The reduction engine: which patches are tried, in which order, and what is kept."""
