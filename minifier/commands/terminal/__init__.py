"""Output on the terminal, a module for each subject. Only the verbs import these modules."""
