"""What the terminal shows, by what it is about. Only the verbs import these modules."""
