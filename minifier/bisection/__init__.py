"""`minify bisect`: find the graphs, and the nodes of them, that must be compiled for a program to fail."""
