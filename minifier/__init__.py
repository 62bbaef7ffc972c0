"""The oracle, the isolated workers, the passes and the reducer."""
