"""Assigning an incident: its timeline, the audit log, and two people at once."""

from __future__ import annotations

import pytest

from monitoring.alerts import lifecycle
from monitoring.alerts.incidents import open_incident
from monitoring.models import AuditEntry, Channel, Incident, IncidentKind, Notification, Severity
from monitoring.reasons.alerts import AlertReason


@pytest.fixture
def incident(rows, now):
    Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.org"]})
    return open_incident(rows.job(), None, IncidentKind.NOT_RESTARTED, Severity.WARNING, "It fails.", {}, now)


def steps():
    return [(event.kind, event.text_value) for event in Incident.objects.get().events.all()][1:]


def test_each_assignment_is_recorded_and_audited_but_sends_no_notification(incident, now):
    result = Notification.objects.count()
    lifecycle.assign(incident, "", "ada", "bob", " on call ", now)
    lifecycle.assign(incident, "ada", "eve", "ada", "", now)
    lifecycle.assign(incident, "eve", "", "eve", "", now)
    assert Incident.objects.get().assigned_to == ""
    assert steps() == [
        ("assigned", AlertReason.ASSIGNED_NOTE(to="ada", by="bob", note="on call")),
        ("assigned", AlertReason.ASSIGNED(to="eve", by="ada")),
        ("assigned", AlertReason.UNASSIGNED(by="eve")),
    ]
    entries = AuditEntry.objects.filter(action="incident.assign").order_by("id")
    moves = [(each.details["was"], each.details["now"]) for each in entries]
    assert moves == [("", "ada"), ("ada", "eve"), ("eve", "")]
    assert Notification.objects.count() == result


@pytest.mark.parametrize(
    ("was", "to", "reason"),
    [
        ("", "bob", AlertReason.ALREADY_ASSIGNED(to="ada")),  # somebody was faster
        ("ada", "ada", AlertReason.ALREADY_ASSIGNED(to="ada")),
        ("bob", "", AlertReason.ALREADY_ASSIGNED(to="ada")),
    ],
)
def test_an_assignment_is_refused_if_the_assignee_has_changed(incident, now, was, to, reason):
    Incident.objects.update(assigned_to="ada")
    with pytest.raises(lifecycle.IncidentUnchanged) as refused:
        lifecycle.assign(incident, was, to, "bob", "", now)
    assert refused.value.reason == reason
    assert Incident.objects.get().assigned_to == "ada"
    assert steps() == []


def test_an_incident_without_an_assignee_cannot_be_unassigned(incident, now):
    with pytest.raises(lifecycle.IncidentUnchanged) as refused:
        lifecycle.assign(incident, "", "", "bob", "", now)
    assert refused.value.reason == AlertReason.ALREADY_UNASSIGNED()


def test_a_resolved_incident_keeps_its_assignee(incident, now):
    lifecycle.assign(incident, "", "ada", "ada", "", now)
    lifecycle.resolve(incident, "ada", "", now)
    with pytest.raises(lifecycle.IncidentMovedOn) as refused:
        lifecycle.assign(incident, "ada", "bob", "bob", "", now)
    assert refused.value.reason == AlertReason.ALREADY_RESOLVED()
    assert Incident.objects.get().assigned_to == "ada"
