"""Reads the state of a snapshot with Spark."""
