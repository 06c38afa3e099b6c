"""Savepoints: requested by a schedule, a person or a restart, and tracked until they end."""
