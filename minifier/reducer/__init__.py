"""The reducer: which candidates are tried, in which order, and what is kept."""
