"""Notifications become messages: grouped, limited in number, ordered, and suppressed where nobody needs them."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest
from django.db.models import F

from monitoring.alerts import lifecycle, maintenance
from monitoring.alerts.evaluation import evaluate_due
from monitoring.alerts.incidents import Ending, Opening, open_incidents, resolve_incidents
from monitoring.alerts.outbox import SETTLING
from monitoring.models import (
    AlertRule,
    Channel,
    Delivery,
    DeliveryState,
    Incident,
    IncidentKind,
    IncidentState,
    MaintenanceWindow,
    Notification,
    Severity,
)
from monitoring.notify.delivery import deliver_due
from monitoring.notify.due_notifications import gather_due
from monitoring.notify.message import message_of
from monitoring.outages import note_answer, note_silence
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.work import WorkReason
from tests.monitoring.reported import NOTHING, done

MINUTE = timedelta(minutes=1)


@pytest.fixture
def channel(rows):
    return Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.org"]})


@pytest.fixture
def cluster(rows):
    return rows.cluster(name="production")


@pytest.fixture
def fail(rows, cluster, now):
    """Return a function that opens incidents for `many` new jobs."""
    numbers = count(1)

    def opened(many=1, at=now, severity=Severity.WARNING, on=None, **job):
        jobs = [rows.job(on or cluster, name=f"job-{next(numbers):04}", **job) for _ in range(many)]
        kind = IncidentKind.FAILED_IN_WINDOW
        return open_incidents([Opening(kind, severity, f"{each} fails.", job=each) for each in jobs], at)

    return opened


def die(cluster, at):
    opening = Opening(IncidentKind.CLUSTER_UNREACHABLE, Severity.CRITICAL, f"{cluster} is silent.", cluster=cluster)
    return open_incidents([opening], at)[0]


def recover(incident, at):
    resolve_incidents([Ending(Incident.objects.get(pk=incident.pk), "it works.")], at)


def written_messages(channel=None):
    """Return every message so far as (event, number of notifications), oldest first."""
    found = Delivery.objects.filter(channel=channel) if channel else Delivery.objects.all()
    messages = [message_of(each) for each in found.order_by("id")]
    return [("digest" if each.is_digest else each.lead.event, each.total) for each in messages]


def sent(at):
    """Mark all pending messages as sent."""
    Delivery.objects.filter(state=DeliveryState.PENDING).update(state=DeliveryState.SENT, sent_at=at)


def tick(*moments):
    for at in moments:
        gather_due(at)
        sent(at)


def why(incident):
    notification = Notification.objects.filter(event__incident=incident).latest("id")
    return notification.state, notification.why


# Grouping


def test_incidents_within_the_group_wait_are_one_message(channel, fail, now):
    fail(3)
    fail(2, now + timedelta(seconds=8))
    assert gather_due(now + timedelta(seconds=9)) == 0
    gather_due(now + timedelta(seconds=10))
    assert written_messages() == [("opened", 5)]


def test_incidents_of_another_cluster_are_another_message(rows, channel, fail, now):
    fail(2)
    fail(3, on=rows.cluster(name="other"))
    gather_due(now + MINUTE)
    assert sorted(written_messages()) == [("opened", 2), ("opened", 3)]


def test_a_message_lists_the_most_severe_first_and_at_most_twenty(channel, fail, now):
    fail(30)
    fail(1, severity=Severity.CRITICAL)
    gather_due(now + MINUTE)
    message = message_of(Delivery.objects.get())
    assert (message.lead.severity, len(message.items), message.unlisted) == ("critical", 20, 11)
    assert Delivery.objects.get().subject == "[critical] 31 incidents on cluster production: job-0031 fails"


# Limits


def test_beyond_the_limit_the_rest_is_one_digest(rows, channel, fail, now):
    Channel.objects.update(messages_per_10_min=3)
    for number in range(5):
        fail(2, on=rows.cluster(name=f"c{number}"), severity=Severity.CRITICAL if number == 4 else Severity.WARNING)
    gather_due(now + MINUTE)
    assert written_messages() == [("opened", 2), ("opened", 2), ("digest", 6)]
    assert message_of(Delivery.objects.earliest("id")).lead.severity == "critical"


def test_with_the_limit_reached_everything_waits_until_a_message_is_free_again(rows, channel, fail, now):
    Channel.objects.update(messages_per_10_min=1)
    fail(1)
    tick(now + MINUTE)
    _, second = fail(2, now + 2 * MINUTE)
    tick(now + 3 * MINUTE)
    assert written_messages() == [("opened", 1)]
    assert why(second) == ("waiting", "the channel's limit of 1 message in 10 min is reached")
    tick(now + 11 * MINUTE)
    assert written_messages() == [("opened", 1), ("opened", 2)]


# Suppression


def test_an_incident_resolved_before_its_message_is_sent_once_as_resolved(channel, fail, now):
    (incident,) = fail()
    recover(incident, now + timedelta(seconds=5))
    gather_due(now + MINUTE)
    assert written_messages() == [("resolved", 1)]


def test_a_dead_cluster_is_one_message_for_any_state_of_its_jobs(channel, cluster, fail, now):
    before = fail(20)
    die(cluster, now + timedelta(seconds=5))
    after = fail(30, now + timedelta(seconds=60))
    tick(now + MINUTE, now + 2 * MINUTE)
    assert written_messages() == [("opened", 1)]
    assert why(before[0])[0] == why(after[0])[0] == "held"


def test_the_problems_left_after_an_outage_are_one_message(channel, cluster, fail, now):
    parent = die(cluster, now)
    first, second, third = fail(3, now + MINUTE)
    tick(now + 2 * MINUTE)
    recover(first, now + 3 * MINUTE)
    recover(parent, now + 4 * MINUTE)
    tick(now + 5 * MINUTE)
    assert written_messages() == [("opened", 1), ("resolved", 1)]
    output = message_of(Delivery.objects.latest("id")).lead
    assert (output.sentence.code, output.sentence.args["hid"], output.sentence.args["left"]) == (
        AlertReason.HID_SOME,
        3,
        2,
    )
    assert output.text().endswith("It hid 3 of its jobs' incidents; 2 of them are open.")
    recover(second, now + 5 * MINUTE)
    tick(now + 4 * MINUTE + SETTLING)
    assert written_messages()[2:] == [("opened", 1)]
    assert message_of(Delivery.objects.latest("id")).lead.job == third.job.name


def test_two_transactions_that_could_not_see_each_other_still_make_one_message(channel, cluster, fail, now):
    parent = die(cluster, now)
    (incident,) = fail(1, now)
    Incident.objects.filter(pk=incident.pk).update(inhibited_by=None)
    Notification.objects.filter(event__incident=incident).update(state="waiting", why="")
    tick(now + MINUTE)
    assert written_messages() == [("opened", 1)]
    assert why(incident)[0] == "held"
    recover(parent, now + 2 * MINUTE)
    tick(now + 3 * MINUTE, now + 2 * MINUTE + SETTLING)
    assert written_messages()[1:] == [("resolved", 1), ("opened", 1)]


def test_the_receiver_of_an_opening_gets_the_resolution_even_if_the_cluster_died(channel, cluster, fail, now):
    (incident,) = fail()
    tick(now + MINUTE)
    die(cluster, now + 2 * MINUTE)
    recover(incident, now + 3 * MINUTE)
    tick(now + 4 * MINUTE)
    assert sorted(written_messages()) == [("opened", 1), ("opened", 1), ("resolved", 1)]


@pytest.fixture
def window(now):
    def opened(minutes=60, **scope):
        return MaintenanceWindow.objects.create(
            reason="disk", starts_at=now, ends_at=now + minutes * MINUTE, created_by="olga", **scope
        )

    return opened


def test_messages_wait_for_the_end_of_maintenance(channel, cluster, window, fail, now):
    window(cluster=cluster)
    short, long = fail(2)
    recover(short, now + 5 * MINUTE)
    tick(now + MINUTE, now + 6 * MINUTE, now + 59 * MINUTE)
    assert written_messages() == []
    assert why(long) == ("waiting", "silenced by maintenance of cluster production")
    tick(now + 60 * MINUTE, now + 61 * MINUTE)
    assert sorted(written_messages()) == [("opened", 1), ("resolved", 1)]


def test_a_window_that_ends_early_releases_all_messages_at_once(channel, cluster, window, fail, now):
    planned = window(cluster=cluster)
    fail()
    tick(now + MINUTE)
    assert maintenance.end_window(planned, "olga", now + 2 * MINUTE) == 1
    tick(now + 2 * MINUTE)
    assert written_messages() == [("opened", 1)]
    assert set(planned.silenced.values_list("event__incident", flat=True)) == set(
        Incident.objects.values_list("pk", flat=True)
    )


def test_a_window_over_labels_covers_jobs_that_have_them_all(channel, window, fail, now):
    window(selector="team=pay,tier=1,cluster=production")
    fail(labels={"team": "pay", "tier": "1", "x": "y"})
    (other,) = fail(labels={"team": "pay"})
    tick(now + MINUTE)
    assert [message_of(each).lead.job for each in Delivery.objects.all()] == [other.job.name]


def test_a_window_of_one_job_covers_no_other(channel, window, fail, now):
    covered, other = fail(2)
    window(job=covered.job)
    tick(now + MINUTE)
    assert [message_of(each).lead.job for each in Delivery.objects.all()] == [other.job.name]


def test_the_resolution_of_an_incident_sent_before_a_window_is_sent_within_it(channel, cluster, window, fail, now):
    (incident,) = fail()
    tick(now + MINUTE)
    window(cluster=cluster)
    recover(incident, now + 2 * MINUTE)
    tick(now + 3 * MINUTE)
    assert written_messages() == [("opened", 1), ("resolved", 1)]


# Reminders and escalation


def test_an_incident_is_repeated_until_it_is_acknowledged(channel, fail, now):
    Channel.objects.update(repeat_every_s=1800)
    (incident,) = fail()
    tick(*(now + n * 10 * MINUTE for n in range(1, 8)))
    assert written_messages() == [("opened", 1), ("repeat", 1), ("repeat", 1)]
    lifecycle.acknowledge(incident, "olga", "", now + 71 * MINUTE)
    tick(*(now + n * 10 * MINUTE for n in range(8, 20)))
    assert written_messages() == [("opened", 1), ("repeat", 1), ("repeat", 1)]
    assert why(incident) == ("dropped", "acknowledged by olga")


@pytest.fixture
def second(channel):
    other = Channel.objects.create(name="boss", kind="mail", settings={"to": ["boss@example.org"]}, enabled=True)
    channel.escalate_to, channel.escalate_after_s = other, 900
    channel.save()
    return other


@pytest.fixture
def only_ops(channel, second, rows, cluster, now):
    """Open an incident of a rule that notifies only the first channel."""
    job = rows.job(cluster, name="flights")
    rule = AlertRule.objects.create(job=job)
    rule.channels.set([channel])
    return open_incidents(
        [Opening(IncidentKind.FAILED_IN_WINDOW, Severity.WARNING, "fails.", rule=rule, job=job)], now
    )[0]


def test_an_escalation_notifies_a_second_channel_also_of_the_resolution(second, only_ops, now):
    tick(now + MINUTE, now + 15 * MINUTE)
    assert written_messages(second) == []
    tick(now + 16 * MINUTE)
    assert written_messages(second) == [("escalation", 1)]
    recover(only_ops, now + 20 * MINUTE)
    tick(now + 21 * MINUTE)
    assert written_messages(second) == [("escalation", 1), ("resolved", 1)]


@pytest.mark.parametrize("act", ["acknowledge", "resolve", "snooze"])
def test_an_acknowledged_incident_is_not_escalated(second, only_ops, now, act):
    tick(now + MINUTE)
    match act:
        case "acknowledge":
            lifecycle.acknowledge(only_ops, "olga", "", now + 2 * MINUTE)
        case "resolve":
            recover(only_ops, now + 2 * MINUTE)
        case _:
            lifecycle.snooze(only_ops, now + 60 * MINUTE, "olga", "", now + 2 * MINUTE)
    tick(now + 16 * MINUTE)
    assert ("escalation", 1) not in written_messages()


def test_channels_that_escalate_to_each_other_are_notified_once_each(channel, second, only_ops, now):
    second.escalate_to, second.escalate_after_s = channel, 60
    second.save()
    tick(*(now + n * MINUTE for n in range(1, 120)))
    assert (written_messages(second), written_messages(channel)) == (
        [("escalation", 1)],
        [("opened", 1), ("escalation", 1)],
    )


def test_a_snooze_suppresses_messages_and_its_end_is_notified(channel, fail, now):
    Channel.objects.update(repeat_every_s=300)
    (incident,) = fail()
    tick(now + MINUTE)
    lifecycle.snooze(incident, now + 60 * MINUTE, "olga", "known", now + 2 * MINUTE)
    tick(*(now + n * MINUTE for n in range(3, 60)))
    assert written_messages() == [("opened", 1)]
    assert lifecycle.wake_due(now + 60 * MINUTE) == done(WorkReason.SNOOZES_OVER(count=1))
    tick(now + 61 * MINUTE, now + 67 * MINUTE)
    assert written_messages() == [("opened", 1), ("woken", 1), ("repeat", 1)]
    incident.refresh_from_db()
    assert (incident.state, incident.snoozed_until) == (IncidentState.OPEN, None)
    assert [event.kind for event in incident.events.all()] == ["opened", "snoozed", "woken"]


def test_a_snooze_keeps_the_acknowledgement(channel, fail, now):
    (incident,) = fail()
    lifecycle.acknowledge(incident, "olga", "", now)
    lifecycle.snooze(incident, now + MINUTE, "olga", "", now)
    lifecycle.wake_due(now + MINUTE)
    incident.refresh_from_db()
    assert incident.state == IncidentState.ACKNOWLEDGED


# Order


def test_a_resolution_waits_until_the_opening_was_delivered(channel, fail, now):
    (incident,) = fail()
    gather_due(now + MINUTE)
    recover(incident, now + 2 * MINUTE)
    gather_due(now + 3 * MINUTE)
    assert written_messages() == [("opened", 1)]
    assert why(incident)[1] == "an earlier message about the incident is still being delivered"
    sent(now + 4 * MINUTE)
    gather_due(now + 5 * MINUTE)
    assert written_messages() == [("opened", 1), ("resolved", 1)]


def test_many_notifications_need_as_many_queries_as_few(channel, fail, now):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def queries_needed(many, at):
        fail(many, at)
        with CaptureQueriesContext(connection) as queries:
            gather_due(at + MINUTE)
        sent(at + MINUTE)
        return len(queries)

    assert queries_needed(10, now) == queries_needed(500, now + 20 * MINUTE)


def test_a_disabled_channel_gets_no_message_with_that_reason(channel, fail, now):
    (incident,) = fail()
    Channel.objects.update(enabled=False)
    assert deliver_due(now + MINUTE) == NOTHING
    assert why(incident) == ("dropped", "the channel was switched off")


def test_acknowledging_several_skips_those_that_changed(channel, fail, now):
    _, second = fail(2)
    recover(second, now)
    found = list(Incident.objects.all())
    assert lifecycle.for_each(found, lambda each: lifecycle.acknowledge(each, "olga", "on it", now)) == 1
    assert set(Incident.objects.values_list("state", F("acknowledged_by"))) == {
        ("acknowledged", "olga"),
        ("resolved", ""),
    }


def test_from_the_rows_a_cluster_that_dies_with_its_jobs_is_one_incident_and_one_message(rows, channel, cluster, now):
    """The rules see that checkpoints of the cluster's jobs fail, and that it stops answering and answers again."""
    runs = [rows.run(rows.job(cluster)) for _ in range(20)]
    evaluate_due(now)
    at = now + MINUTE
    cluster.unreachable_since = at
    cluster.save()
    note_silence(cluster, "connect timeout", at)
    for run in runs:
        for number in range(1, 6):
            rows.failed(run, number, at + timedelta(seconds=number))
    for minutes in range(2, 30):
        evaluate_due(now + minutes * MINUTE)
        tick(now + minutes * MINUTE)
    assert written_messages() == [("opened", 1)]
    assert Incident.objects.get().kind == IncidentKind.CLUSTER_UNREACHABLE

    cluster.unreachable_since = None
    cluster.save()
    note_answer(cluster, now + 30 * MINUTE)
    for minutes in range(30, 60):
        evaluate_due(now + minutes * MINUTE)
        tick(now + minutes * MINUTE)
    # The failures count at their time and are over: twenty more incidents, in one message with the cluster's.
    assert written_messages()[1:] == [("resolved", 21)]
