"""What of a minimal case matters: questions that change one thing of it, and what the answers say in words."""
