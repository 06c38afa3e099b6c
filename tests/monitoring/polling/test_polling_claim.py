"""At most one poll of a cluster runs at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from monitoring.engine.evidence import Answered, NoAnswer
from monitoring.models import Cluster
from monitoring.polling.claim import LEASE, ClaimLost, claim_due, release, renew
from monitoring.polling.known import KnownCluster, recall
from monitoring.polling.observation import ClusterObservation
from monitoring.polling.store import store

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def make(name: str = "a", **values: object) -> Cluster:
    return Cluster.objects.create(name=name, rest_url="http://127.0.0.1:1", **values)


def test_a_cluster_in_flight_is_not_claimed_again_until_its_lease_ends():
    make()
    assert len(claim_due(NOW)) == 1
    assert claim_due(NOW + LEASE - timedelta(seconds=1)) == []
    assert len(claim_due(NOW + LEASE)) == 1


def test_only_enabled_due_clusters_are_claimed_in_the_order_of_their_due_times():
    make("later", next_poll_at=NOW + timedelta(seconds=1))
    make("off", enabled=False)
    make("just", next_poll_at=NOW)
    make("long", next_poll_at=NOW - timedelta(minutes=1))
    make("never")
    assert [claim.cluster.name for claim in claim_due(NOW)] == ["never", "long", "just"]


def silence(known: KnownCluster) -> ClusterObservation:
    return ClusterObservation(NoAnswer("refused"), known)


def test_a_flight_that_outlived_its_lease_writes_nothing():
    cluster = make()
    (slow,) = claim_due(NOW)
    (next_one,) = claim_due(NOW + LEASE)
    with pytest.raises(ClaimLost), transaction.atomic():
        store(slow, silence(recall(cluster, None, NOW)), NOW + LEASE, NOW)
    cluster.refresh_from_db()
    assert (cluster.consecutive_failures, cluster.poll_claimed_by) == (0, next_one.token)
    assert cluster.poll_claimed_until == NOW + LEASE + LEASE


def test_a_poll_that_outlived_its_lease_does_not_report_unchanged_data_either():
    cluster = make(last_answer_at=NOW - timedelta(seconds=20), read_until=NOW - timedelta(seconds=20))
    (slow,) = claim_due(NOW)
    (next_one,) = claim_due(NOW + LEASE)
    known = replace(recall(cluster, None, NOW), adopted_at=NOW + LEASE)
    with pytest.raises(ClaimLost):
        store(slow, ClusterObservation(Answered({}), known), NOW + LEASE, NOW)
    cluster.refresh_from_db()
    assert (cluster.last_answer_at, cluster.poll_claimed_by) == (NOW - timedelta(seconds=20), next_one.token)


def test_a_lease_is_prolonged_while_it_is_held_and_not_when_it_was_lost():
    cluster = make()
    (slow,) = claim_due(NOW)
    renew([slow], NOW + timedelta(seconds=15))
    assert claim_due(NOW + LEASE) == []
    (taken,) = claim_due(NOW + LEASE + timedelta(seconds=15))
    renew([slow], NOW + timedelta(hours=1))
    release([slow])
    cluster.refresh_from_db()
    assert (cluster.poll_claimed_by, cluster.poll_claimed_until) == (
        taken.token,
        NOW + 2 * LEASE + timedelta(seconds=15),
    )


def test_a_released_claim_is_due_at_once():
    make()
    release(claim_due(NOW))
    assert len(claim_due(NOW)) == 1
