"""Isolated workers: a zygote that forks them, the messages they speak, the loop they run."""
