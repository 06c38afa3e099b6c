"""The queries that benchmarks run, with Waymark and without."""
