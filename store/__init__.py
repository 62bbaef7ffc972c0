"""Cases and failures as data, their safe encoding, and the index. Nothing here is about a single compiler."""
