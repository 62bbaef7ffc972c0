"""The ground floor: cases and failures as data, their safe encoding, and the SQLite index. Knows no compiler."""
