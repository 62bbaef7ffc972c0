"""Sentences and pictures about a failure, and the HTML report."""
