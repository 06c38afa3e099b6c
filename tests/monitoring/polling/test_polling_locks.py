"""A locked table delays only the polls that need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection

from monitoring.models import Checkpoint, Cluster
from monitoring.polling import claim
from tests.monitoring.polling.conftest import FakeEngine, Workers

pytestmark = pytest.mark.django_db(transaction=True)


def dsn() -> str:
    given: dict[str, Any] = connection.get_connection_params()
    return psycopg.conninfo.make_conninfo(
        **{key: given[key] for key in ("dbname", "host", "port", "user") if key in given}
    )


def test_a_locked_table_delays_a_poll_for_seconds_and_its_answer_is_read_again(
    watch: Callable[[FakeEngine], Cluster],
    make_engine: Callable[[], FakeEngine],
    poll: Workers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim, "LOCKS_WITHIN_S", 0.2)
    busy, idle = make_engine(), make_engine()
    held_up, other = watch(busy), watch(idle)
    busy.job().add(1)
    with psycopg.connect(dsn()) as blocker:
        blocker.execute("LOCK TABLE monitoring_operatorcheckpoint IN SHARE MODE")
        poll()
        held_up.refresh_from_db()
        other.refresh_from_db()
        assert "lock timeout" in held_up.last_error
        assert not Checkpoint.objects.exists(), "whole or not at all"
        assert other.last_answer_at is not None
    poll()
    held_up.refresh_from_db()
    assert (held_up.last_error, Checkpoint.objects.filter(final=True).count()) == ("", 1)
