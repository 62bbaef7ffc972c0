"""Cases as plain data and as checked JSON documents. Nothing here imports torch."""
