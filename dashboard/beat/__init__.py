"""Celery beat for several processes: one sends the periodic tasks, the others are standbys."""
