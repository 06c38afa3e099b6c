"""Whether a notification may be sent now, as a table of all reasons and states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from monitoring.models import IncidentState, MaintenanceWindow, NotificationReason
from monitoring.notify.verdict import Drop, Facts, Go, Wait, judge
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.notify import NotifyReason

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
WINDOW = MaintenanceWindow(selector="team=a", starts_at=NOW, ends_at=LATER)
OP, AC, SN, RE = IncidentState.OPEN, IncidentState.ACKNOWLEDGED, IncidentState.SNOOZED, IncidentState.RESOLVED
OPENED, RESOLVED, REPEAT, ESCALATION, WOKEN = (
    NotificationReason.OPENED,
    NotificationReason.RESOLVED,
    NotificationReason.REPEAT,
    NotificationReason.ESCALATION,
    NotificationReason.WOKEN,
)


@pytest.mark.parametrize(
    ("reason", "state", "expected"),
    [
        (OPENED, OP, Go), (OPENED, AC, Go), (OPENED, SN, Wait), (OPENED, RE, Drop),
        (REPEAT, OP, Go), (REPEAT, AC, Drop), (REPEAT, SN, Drop), (REPEAT, RE, Drop),
        (ESCALATION, OP, Go), (ESCALATION, AC, Drop), (ESCALATION, SN, Drop), (ESCALATION, RE, Drop),
        (WOKEN, OP, Go), (WOKEN, AC, Go), (WOKEN, SN, Drop), (WOKEN, RE, Drop),
        (RESOLVED, RE, Go), (RESOLVED, OP, Drop), (RESOLVED, AC, Drop), (RESOLVED, SN, Drop),
    ],
)  # fmt: skip
def test_the_verdict_depends_on_the_state_of_the_incident(reason, state, expected):
    facts = Facts(reason, state, acknowledged_by="olga", snoozed_until=LATER if state == SN else None)
    assert isinstance(judge(facts), expected)


@pytest.mark.parametrize("reason", [OPENED, REPEAT, ESCALATION, WOKEN])
def test_a_hidden_notification_waits_without_a_limit(reason):
    assert judge(Facts(reason, OP, hidden_by=7)) == Wait(None, NotifyReason.HIDDEN(incident=7))


@pytest.mark.parametrize("reason", [OPENED, REPEAT, ESCALATION, WOKEN])
def test_during_maintenance_it_waits_for_the_windows_end(reason):
    scope = AlertReason.OF_JOBS_WITH(labels="team=a")
    why = NotifyReason.SILENCED(window=AlertReason.MAINTENANCE(scope=scope))
    assert judge(Facts(reason, OP, window=WINDOW)) == Wait(LATER, why, WINDOW)


def test_a_resolution_waits_for_the_window_only_if_the_opening_was_not_sent():
    assert isinstance(judge(Facts(RESOLVED, RE, window=WINDOW)), Wait)
    assert judge(Facts(RESOLVED, RE, window=WINDOW, was_notified=True)) == Go()


def test_a_message_waits_for_an_earlier_one_about_the_same_incident():
    for reason, state in ((OPENED, OP), (RESOLVED, RE), (REPEAT, OP)):
        assert judge(Facts(reason, state, earlier_until=LATER)) == Wait(LATER, NotifyReason.AFTER_EARLIER())


def test_a_dropped_notification_does_not_wait_for_an_earlier_one():
    assert isinstance(judge(Facts(REPEAT, AC, earlier_until=LATER)), Drop)


def test_a_disabled_channel_gets_no_message():
    assert judge(Facts(OPENED, OP, channel_enabled=False)) == Drop(NotifyReason.CHANNEL_OFF())
