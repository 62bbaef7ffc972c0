"""Record an eager run of a case as data: the values of nodes, their decompositions, the signatures of calls."""
