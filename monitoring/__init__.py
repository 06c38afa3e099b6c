"""Monitors clusters and jobs, stores their history, alerts people, takes savepoints, and restarts jobs."""
