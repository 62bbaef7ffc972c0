"""Documents for people: scripts and their records, the other formats, bundles, and the HTML report of an index."""
