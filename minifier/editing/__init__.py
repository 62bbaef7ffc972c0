"""Patches: proposed edits of a case as plain data, the case as passes see it, what is well formed. No torch."""
