"""Captures on their way to a server: their form, the folder in which they wait, and what sends them."""
