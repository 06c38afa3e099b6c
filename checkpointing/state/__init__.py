"""State: what programs keep between batches (keyed and operator state), and reading it out of a snapshot."""
