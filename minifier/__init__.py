"""The oracle, the isolated workers, the passes and the reduction engine."""
