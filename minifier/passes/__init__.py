"""Passes: pure functions from a case to the edits they propose."""
