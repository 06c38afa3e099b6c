"""Locks of the test's database."""

from __future__ import annotations

from django.db import connection


def waiting_for_locks() -> int:
    """Return how many connections wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # otherwise a transaction sees old statistics
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return int(cursor.fetchone()[0])
