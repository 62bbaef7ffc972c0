"""The index: every captured failure is a row of one database."""
