"""Minimal cases run again: against today's installation, under other backends, as tests."""
