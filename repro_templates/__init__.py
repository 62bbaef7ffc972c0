"""Cases as source: printed graphs and inputs, scripts, and their verification in fresh processes."""
