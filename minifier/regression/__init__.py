"""Runs minimal cases again: with the packages installed now, under other backends, or as tests."""
