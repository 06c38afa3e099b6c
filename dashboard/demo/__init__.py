"""The demo: two PySpark jobs that read all flights from New York City in 2013, replayed as a stream of files."""
