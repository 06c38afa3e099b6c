"""An installation from before messages were rows of their own keeps every row."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

BEFORE = [("monitoring", "0009_rules_of_every_kind")]
AFTER = [("monitoring", "0010_notifications_and_messages")]
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def migrate(transactional_db):
    def to(target):
        executor = MigrationExecutor(connection)
        executor.migrate(target)
        return MigrationExecutor(connection).loader.project_state(target).apps

    yield to
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


@pytest.mark.nightly
def test_deliveries_and_their_logs_are_carried_over(migrate):
    old = migrate(BEFORE)
    cluster, jobs, incidents, events, channels, deliveries = (
        old.get_model("monitoring", name).objects
        for name in ("Cluster", "Job", "Incident", "IncidentEvent", "Channel", "Delivery")
    )
    job = jobs.create(cluster=cluster.create(name="c", rest_url="http://127.0.0.1:1/"), name="flights")
    incident = incidents.create(job=job, kind="failed_in_window", severity="warning", sentence="x", opened_at=AT)
    event = events.create(incident=incident, at=AT, kind="opened", text="It fails.")
    channel = channels.create(name="w", kind="webhook", settings={"url": "http://10.0.0.1/"})
    log = [{"at": AT.isoformat(), "answer": "500"}, {"at": AT.isoformat(), "answer": "200 OK"}]
    deliveries.create(
        event=event, channel=channel, key="k", state="sent", attempts=2, next_try_at=AT, sent_at=AT, log=log
    )
    waiting = channels.create(name="m", kind="mail", settings={"to": ["a@example.org"]})
    deliveries.create(event=event, channel=waiting, key="l", next_try_at=AT)

    new = migrate(AFTER)

    sent, pending = new.get_model("monitoring", "Delivery").objects.order_by("key")
    assert (sent.state, sent.subject, sent.created_at) == ("sent", "It fails.", AT)
    assert [(each.outcome, each.answer) for each in sent.tries.order_by("id")] == [("again", "500"), ("sent", "200 OK")]
    assert (pending.state, pending.tries.count()) == ("pending", 0)
    for delivery in (sent, pending):
        told = delivery.notifications.get()
        assert (told.event_id, told.reason, told.state, told.text) == (event.pk, "opened", "gathered", "It fails.")
    assert new.get_model("monitoring", "Channel").objects.get(name="w").allow_private
