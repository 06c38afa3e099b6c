"""Old messages are deleted, unless the end of their incident must still be notified."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitoring.alerts.incidents import open_incident, resolve_incident
from monitoring.models import (
    Channel,
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    Incident,
    IncidentKind,
    Notification,
    Severity,
)
from monitoring.notify.delivery import deliver_due
from monitoring.notify.forgetting import forget_old

KEPT = timedelta(days=90)
pytestmark = pytest.mark.django_db


@pytest.fixture
def incident(rows, httpserver, now) -> Incident:
    """Return an incident that was notified successfully at `now`."""
    httpserver.expect_request("/hook").respond_with_data("ok")
    settings = {"url": httpserver.url_for("/hook")}
    Channel.objects.create(name="w", kind="webhook", settings=settings, allow_private=True, group_wait_s=0)
    found = open_incident(
        rows.job(), None, IncidentKind.FAILED_IN_WINDOW, Severity.WARNING, "3 checkpoints failed.", {}, now
    )
    deliver_due(now)
    return found


def counts() -> tuple[int, int, int]:
    return Delivery.objects.count(), DeliveryAttempt.objects.count(), Notification.objects.count()


def test_messages_of_an_unresolved_incident_are_kept_at_any_age(incident, now):
    assert forget_old(now + 10 * KEPT, KEPT) == 0
    assert counts() == (1, 1, 1)


def test_old_messages_are_deleted_and_their_incident_is_kept(incident, now):
    resolve_incident(incident, "it completes again.", {}, now)
    deliver_due(now)
    assert counts() == (2, 2, 2)
    assert forget_old(now + KEPT, KEPT) == 0
    assert forget_old(now + KEPT + timedelta(seconds=1), KEPT) == 2
    assert counts() == (0, 0, 0)
    assert list(Incident.objects.get().events.values_list("kind", flat=True)) == ["opened", "resolved"]


def test_an_undelivered_message_is_kept(incident, now):
    resolve_incident(incident, "it completes again.", {}, now)
    Delivery.objects.update(state=DeliveryState.PENDING)
    assert forget_old(now + 10 * KEPT, KEPT) == 0


def test_old_suppressed_notifications_are_deleted_too(incident, now):
    resolve_incident(incident, "it completes again.", {}, now)
    Notification.objects.update(state="dropped", delivery=None)
    Delivery.objects.all().delete()
    assert forget_old(now + KEPT + timedelta(seconds=1), KEPT) == 2
    assert counts() == (0, 0, 0)


def test_many_messages_are_deleted_in_batches(incident, now, monkeypatch):
    monkeypatch.setattr("monitoring.notify.forgetting.BATCH", 1)
    monkeypatch.setattr("monitoring.notify.forgetting.BATCHES", 1)
    resolve_incident(incident, "it completes again.", {}, now)
    deliver_due(now)
    later = now + KEPT + timedelta(seconds=1)
    assert [forget_old(later, KEPT) for _ in range(3)] == [1, 1, 0]
