"""Running one graph: ambient state, private inputs, collectives alone, and how it ended."""
