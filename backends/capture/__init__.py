"""Capture: the hook in a running program, what it keeps of a graph and its call, and who outlives a crash."""
