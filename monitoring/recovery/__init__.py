"""Restart a job exactly once: collect evidence, decide, store an attempt, and take its steps.

The stored attempt prevents a second restart.
"""
