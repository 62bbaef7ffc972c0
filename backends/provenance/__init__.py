"""Restore a live object in another process: backends, custom operators, functions of the script."""
