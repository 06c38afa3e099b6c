"""Sinks that can return to an older state and are fenced: exactly-once end to end."""
