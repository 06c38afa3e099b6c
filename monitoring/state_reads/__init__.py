"""Reads the state of a job's snapshots. A page sends the query, and a worker answers it in a separate process."""
