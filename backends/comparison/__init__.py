"""Comparison of a compiled graph with eager, with float64 results as the truth and a tolerance for each value."""
