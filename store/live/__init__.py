"""Conversion between live torch objects and documents: the part of the store that imports torch."""
