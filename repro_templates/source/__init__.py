"""A case as Python source: its graph, its inputs, and what shows the failure."""
