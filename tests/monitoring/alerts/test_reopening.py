"""Reopening a resolved incident: its rule, its notifications, and what refuses it."""

from __future__ import annotations

import pytest

from monitoring.alerts import lifecycle
from monitoring.alerts.defaults import ensure_default_rules
from monitoring.alerts.evaluation import evaluate_due
from monitoring.alerts.incidents import Opening, open_incidents
from monitoring.models import (
    AlertRule,
    AuditEntry,
    Channel,
    Incident,
    IncidentKind,
    IncidentState,
    Notification,
    NotificationState,
    RulePhase,
    RuleState,
    Severity,
)
from monitoring.reasons.alerts import AlertReason


@pytest.fixture
def job(rows):
    return rows.job(name="flights-by-route")


@pytest.fixture
def run(rows, job):
    return rows.run(job)


@pytest.fixture
def rule(job):
    """Return the only enabled rule."""
    ensure_default_rules()
    AlertRule.objects.update(enabled=False)
    return AlertRule.objects.create(job=job, threshold=1, window_s=600, check_every_s=5)


@pytest.fixture
def resolved(rows, run, rule, now, later):
    """Return an incident that a person resolved while its problem lasts."""
    Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.org"]})
    rows.failed(run, 1, now)
    evaluate_due(later(1))
    incident = Incident.objects.get()
    lifecycle.acknowledge(incident, "ada", "", later(5))
    lifecycle.resolve(incident, "ada", "known", later(10))
    return incident


def test_a_reopened_incident_is_open_and_unacknowledged(resolved, later):
    lifecycle.reopen(resolved, "bob", "not over", later(20))

    incident = Incident.objects.get()
    assert (incident.state, incident.resolved_at, incident.resolved_by) == (IncidentState.OPEN, None, "")
    assert (incident.acknowledged_at, incident.acknowledged_by) == (None, "")
    last = incident.events.last()
    assert (last.kind, last.text_value) == ("reopened", AlertReason.REOPENED_NOTE(by="bob", note="not over"))
    entry = AuditEntry.objects.get(action="incident.reopen")
    assert (entry.reason, entry.details["before"], entry.details["after"]) == ("not over", "resolved", "open")


def test_a_reopened_incident_notifies_as_a_new_one_does(resolved, later):
    lifecycle.reopen(resolved, "bob", "", later(20))
    result = [(each.event.kind, each.reason, each.state) for each in Notification.objects.order_by("id")]
    assert result[-1] == ("reopened", "opened", NotificationState.WAITING)
    assert [reason for _, reason, _ in result] == ["opened", "resolved", "opened"]


def test_the_rule_resolves_a_reopened_incident_when_the_problem_ends(resolved, later):
    assert RuleState.objects.get().phase == RulePhase.DISMISSED
    lifecycle.reopen(resolved, "bob", "", later(20))
    state = RuleState.objects.get()
    assert (state.phase, state.counts_since) == (RulePhase.OPEN, None)

    evaluate_due(later(60))
    assert Incident.objects.get().state == IncidentState.OPEN
    evaluate_due(later(700))  # the failure left the window
    assert Incident.objects.get().state == IncidentState.RESOLVED
    assert not RuleState.objects.filter(phase=RulePhase.OPEN).exists()


def test_a_second_unresolved_incident_of_the_rule_refuses_it(resolved, rule, job, later):
    opening = Opening(rule.kind, Severity.WARNING, "It fails again.", rule=rule, job=job)
    (other,) = open_incidents([opening], later(15))
    with pytest.raises(lifecycle.IncidentUnchanged) as refused:
        lifecycle.reopen(resolved, "bob", "", later(20))
    assert refused.value.reason == AlertReason.REOPENED_MEANWHILE(incident=other.pk)
    assert Incident.objects.get(pk=resolved.pk).state == IncidentState.RESOLVED


def test_a_second_restart_incident_of_a_job_refuses_it(rows, job, now, later):
    opening = Opening(IncidentKind.NOT_RESTARTED, Severity.CRITICAL, "It is dead.", job=job)
    (first,) = open_incidents([opening], now)
    lifecycle.resolve(first, "ada", "", later(1))
    (second,) = open_incidents([opening], later(2))
    with pytest.raises(lifecycle.IncidentUnchanged) as refused:
        lifecycle.reopen(first, "bob", "", later(3))
    assert refused.value.reason == AlertReason.REOPENED_MEANWHILE(incident=second.pk)


def test_an_unresolved_incident_is_not_reopened(resolved, later):
    stale = Incident.objects.get()
    lifecycle.reopen(resolved, "bob", "", later(20))
    with pytest.raises(lifecycle.IncidentMovedOn, match="open already"):
        lifecycle.reopen(stale, "eve", "", later(21))
    assert Notification.objects.filter(event__kind="reopened").count() == 1


@pytest.mark.parametrize("change", ["disable", "delete"])
def test_an_incident_that_no_rule_watches_is_not_reopened(resolved, rule, later, change):
    if change == "disable":
        AlertRule.objects.filter(pk=rule.pk).update(enabled=False)
    else:
        rule.delete()
    with pytest.raises(lifecycle.IncidentUnchanged) as refused:
        lifecycle.reopen(Incident.objects.get(), "bob", "", later(20))
    assert refused.value.reason == AlertReason.NO_RULE_TO_REOPEN()


def test_an_incident_of_a_removed_cluster_is_not_reopened(resolved, job, later):
    job.cluster.archived_at = later(15)
    job.cluster.save()
    with pytest.raises(lifecycle.IncidentUnchanged) as refused:
        lifecycle.reopen(Incident.objects.get(), "bob", "", later(20))
    assert refused.value.reason == AlertReason.NO_CLUSTER_TO_REOPEN()


def test_a_reopened_incident_of_a_silent_cluster_is_hidden(resolved, job, later):
    opening = Opening(IncidentKind.CLUSTER_UNREACHABLE, Severity.CRITICAL, "Silent.", cluster=job.cluster)
    (parent,) = open_incidents([opening], later(15))
    lifecycle.reopen(resolved, "bob", "", later(20))
    assert Incident.objects.get(pk=resolved.pk).inhibited_by == parent
    assert Notification.objects.get(event__kind="reopened").state == NotificationState.HELD


def test_a_note_is_a_step_in_every_state(resolved, later):
    lifecycle.annotate(resolved, "ada", " it was the disk ", later(3600))
    last = Incident.objects.get().events.last()
    assert (last.kind, last.text_value) == ("note", AlertReason.NOTE(by="ada", note="it was the disk"))
    assert last.at == later(3600)
    assert not Notification.objects.filter(event=last).exists()
    assert AuditEntry.objects.get(action="incident.note").reason == "it was the disk"
