"""Minify a capture, from its replay to its verified script, and every pending capture of an index."""
