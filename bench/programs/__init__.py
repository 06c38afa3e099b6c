"""The queries that benchmarks run with and without Waymark."""
