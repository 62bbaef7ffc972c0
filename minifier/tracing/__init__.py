"""One eager run of a case as data: the values of its nodes, what composites consist of, what calls may leave out."""
