"""Directed graphs as SVG pictures. Knows no graph format."""
