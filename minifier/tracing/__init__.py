"""Record an eager run of a case as data: the values of its nodes, their decompositions, the signatures of their calls."""
