"""`minify work`: workers that take tasks from the queue of an index, and a process for each task."""
