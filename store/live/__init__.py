"""Between live torch objects and documents: everything of the store that imports torch."""
