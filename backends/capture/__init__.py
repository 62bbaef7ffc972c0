"""Capture: the hook in a running program, its snapshots of graphs and calls, and the parent that survives a crash."""
