"""Two real jobs on real input: all flights from New York City in 2013, replayed as a stream of files."""
