"""How to get a live object back in another process: backends, custom operators, functions of the script."""
