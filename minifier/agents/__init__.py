"""The tools of an agent: `minify mcp`, a server of the Model Context Protocol over standard input and output."""
