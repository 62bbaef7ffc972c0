"""Does a compiled graph give what eager gives? Runs side by side, float64 as the truth, tolerances by value."""
