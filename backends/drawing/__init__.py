"""Pictures of directed graphs as SVG, for graphs of any format."""
