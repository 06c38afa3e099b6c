"""The rows that are written at each step of an incident, for one incident and for many."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.test.utils import CaptureQueriesContext

from monitoring.alerts.incidents import (
    Change,
    Ending,
    Opening,
    acknowledge_incident,
    change_incident,
    change_incidents,
    open_incidents,
    resolve_incident,
    resolve_incidents,
    snooze_incident,
    wake_incident,
)
from monitoring.alerts.kinds.job_failed import JobFailedReason
from monitoring.models import AlertRule, Incident, IncidentEvent, IncidentKind, IncidentState, Severity
from monitoring.reasons.alerts import AlertReason


@pytest.fixture
def cluster(rows):
    return rows.cluster(name="production")


@pytest.fixture
def open_for(rows, cluster, now):
    """Return a function that opens an incident for each of `count` new jobs of one cluster."""

    def opened(count=1, at=now):
        jobs = [rows.job(cluster) for _ in range(count)]
        rules = [AlertRule.objects.create(job=job) for job in jobs]
        return open_incidents(
            [
                Opening(IncidentKind.FAILED_IN_WINDOW, Severity.WARNING, f"{job} fails.", {"count": 3}, rule, job)
                for job, rule in zip(jobs, rules, strict=True)
            ],
            at,
        )

    return opened


@pytest.fixture
def cluster_dies(cluster, now):
    def dies(at=now):
        opening = Opening(
            IncidentKind.CLUSTER_UNREACHABLE, Severity.CRITICAL, "production does not answer.", cluster=cluster
        )
        (incident,) = open_incidents([opening], at)
        return incident

    return dies


def steps(incident):
    return [event.kind for event in incident.events.all()]


def test_a_count_that_keeps_changing_is_one_row_the_newest(open_for, now):
    (incident,) = open_for()
    for number in range(4, 9):
        change_incident(incident, f"{number} failed.", {"count": number}, now + timedelta(minutes=number))

    assert steps(incident) == ["opened", "changed"]
    changed = incident.events.last()
    assert (changed.text, changed.evidence, changed.times) == ("8 failed.", {"count": 8}, 5)
    assert (changed.first_at, changed.at) == (now + timedelta(minutes=4), now + timedelta(minutes=8))


def test_a_change_after_another_step_is_a_new_row(open_for, now):
    (incident,) = open_for()
    change_incident(incident, "4 failed.", {}, now + timedelta(minutes=1))
    acknowledge_incident(incident, "olga", "", now + timedelta(minutes=2))
    change_incident(incident, "5 failed.", {}, now + timedelta(minutes=3))
    assert steps(incident) == ["opened", "changed", "acknowledged", "changed"]


def test_actions_of_people_and_the_end_of_a_snooze_are_steps_with_arguments(open_for, now):
    (incident,) = open_for()
    acknowledge_incident(incident, "olga", "", now)
    snooze_incident(incident, now + timedelta(hours=1), "olga", "after lunch", now)
    wake_incident(incident, now + timedelta(hours=1))
    resolve_incident(incident, "", {}, now + timedelta(hours=2), by="olga")

    assert [event.text_value for event in incident.events.all()][1:] == [
        AlertReason.ACKNOWLEDGED(by="olga"),
        AlertReason.SNOOZED_NOTE(length=3600, by="olga", note="after lunch"),
        AlertReason.WOKEN(finding=incident.sentence),
        AlertReason.CLOSED_BY_HAND(lasted=7200, by="olga"),
    ]


def test_an_incident_stores_its_finding_as_a_value(open_for, now):
    (incident,) = open_for()
    finding = JobFailedReason.FAILED(subject="flights", run=4, at=now)
    change_incident(incident, finding, {}, now + timedelta(minutes=1))

    incident.refresh_from_db()
    assert (incident.sentence_value, incident.sentence) == (finding, str(finding))
    assert incident.events.last().text_value == finding
    change_incident(incident, "It was so.", {}, now + timedelta(minutes=2))
    incident.refresh_from_db()
    assert (incident.sentence_value, incident.sentence) == (None, "It was so.")


def test_a_thousand_incidents_need_as_many_queries_as_ten(open_for, now):
    from django.db import connection

    def queries_needed(incidents):
        with CaptureQueriesContext(connection) as queries:
            change_incidents([Change(each, "More.") for each in incidents], now + timedelta(minutes=1))
            change_incidents([Change(each, "Still more.") for each in incidents], now + timedelta(minutes=2))
            resolve_incidents([Ending(each, "it works.") for each in incidents], now + timedelta(minutes=3))
        return len(queries)

    assert queries_needed(open_for(10)) == queries_needed(open_for(200))


def test_a_second_unresolved_incident_of_a_cluster_is_refused_by_the_database(cluster_dies):
    cluster_dies()
    with pytest.raises(IntegrityError), transaction.atomic():
        cluster_dies()


def test_an_unreachable_cluster_hides_old_and_new_incidents_of_its_jobs(open_for, cluster_dies, now):
    (before,) = open_for()
    parent = cluster_dies(now + timedelta(seconds=30))
    (after,) = open_for(at=now + timedelta(seconds=60))

    assert set(parent.inhibited.all()) == {before, after}
    assert steps(before) == ["opened", "inhibited"]
    assert before.events.last().evidence == {"incident": parent.pk}
    assert before.events.last().text_value == AlertReason.HIDDEN(incident=parent.pk, finding=parent.sentence)


def test_incidents_left_when_the_cluster_answers_again_are_no_longer_hidden(open_for, cluster_dies, now):
    first, second = open_for(2)
    parent = cluster_dies()
    resolve_incidents([Ending(first, "it works.")], now + timedelta(minutes=1))
    resolve_incidents([Ending(parent, "it answers.")], now + timedelta(minutes=2))

    assert steps(first) == ["opened", "inhibited", "resolved"]
    assert steps(second) == ["opened", "inhibited", "released"]


def test_another_clusters_jobs_are_not_hidden(rows, open_for, cluster_dies, now):
    cluster_dies()
    other = rows.job(rows.cluster(name="other"))
    (incident,) = open_incidents([Opening(IncidentKind.NOT_RESTARTED, Severity.CRITICAL, "Dead.", job=other)], now)
    assert incident.inhibited_by is None


def test_an_incident_that_is_resolved_already_gets_no_second_end(open_for, now):
    (incident,) = open_for()
    assert resolve_incidents([Ending(incident, "it works.")], now) == [incident]
    stale = Incident.objects.get(pk=incident.pk)
    assert resolve_incidents([Ending(stale, "again.")], now) == []
    assert stale.state == IncidentState.RESOLVED
    assert IncidentEvent.objects.filter(kind="resolved").count() == 1
