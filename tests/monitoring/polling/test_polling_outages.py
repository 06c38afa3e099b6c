"""Outages of polling are stored as rows, so that rules do not count checkpoints as missing in these times."""

from __future__ import annotations

from monitoring.models import Outage, OutageKind


def test_silence_is_one_outage_until_the_cluster_answers_again(engine, cluster, poll):
    poll()
    engine.instead["/jobs/overview"] = "{"
    poll()
    began = poll.clock
    poll()
    engine.instead.clear()
    poll()

    (outage,) = Outage.objects.all()
    assert (outage.cluster, outage.kind, bool(outage.why)) == (cluster, OutageKind.NO_ANSWER, True)
    assert (outage.began_at, outage.ended_at) == (began, poll.clock)


def test_a_missed_poll_is_an_outage_of_waymark(engine, cluster, poll):
    poll()
    cluster.refresh_from_db()
    due = cluster.next_poll_at

    poll(after_s=3600)
    poll()

    (outage,) = Outage.objects.all()
    assert (outage.kind, outage.began_at) == (OutageKind.NOT_POLLED, due)
    assert outage.ended_at is not None


def test_a_poll_that_is_only_a_little_late_is_not_an_outage(engine, cluster, poll):
    poll()
    poll(after_s=80)
    assert not Outage.objects.exists()
