"""`minify serve`: takes captures over HTTP into an index, and tells what is in it; it runs nothing of a capture."""
