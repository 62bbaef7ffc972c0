"""Candidates: a patch as plain data, its application, and the views of a case that passes read. No torch."""
