"""Cases as source: the printed graph, its inputs, the scripts, and their verification in fresh processes."""
