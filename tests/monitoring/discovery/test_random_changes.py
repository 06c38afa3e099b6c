"""Random changes under disconnects, lost versions and two workers: nothing is found twice or left behind."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter

import pytest
from django.db import transaction

from monitoring import clock
from monitoring.discovery import claims, reconciling
from monitoring.discovery.claims import ClaimLost, claim_due
from monitoring.discovery.found import Found, Key
from monitoring.discovery.kubernetes import watching
from monitoring.models import Cluster, DiscoverySource, FoundResource, Job
from tests.monitoring.discovery.played_kubernetes import FLINK, PlayedKubernetes
from tests.monitoring.discovery.workers import Worker
from tests.profile import PROFILE, SEED
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = 40


def act(kubernetes: PlayedKubernetes, chance: random.Random) -> None:
    """Change one deployment: add it, change it, delete it, rename it, or create it again at once."""
    name = f"job-{chance.randrange(NAMES)}"
    if (FLINK, "prod", name) not in kubernetes.objects:
        kubernetes.put(name, labels={"n": str(chance.randrange(9))})
        return
    match chance.randrange(4):
        case 0:
            kubernetes.put(name, labels={"n": str(chance.randrange(9))})
        case 1:
            kubernetes.delete(name)
        case 2:
            kubernetes.delete(name)
            kubernetes.put(f"{name}-{chance.randrange(3)}")
        case 3:
            kubernetes.delete(name)
            kubernetes.put(name, uid=str(uuid.uuid4()))


def disturb(kubernetes: PlayedKubernetes, chance: random.Random) -> None:
    match chance.randrange(3):
        case 0:
            kubernetes.cut()
        case 1:
            kubernetes.status_410 = chance.random() < 0.5
            kubernetes.compact()
        case 2:
            with transaction.atomic():
                watched = Cluster.objects.select_for_update(of=("self",)).filter(archived_at=None, jobs=None)
                for cluster in watched[:1]:
                    Job.objects.get_or_create(cluster=cluster, name="job")


def applied(source: DiscoverySource) -> int:
    version = source.watched_kinds.filter(kind=FLINK).values_list("version", flat=True).first()
    return int(version or 0)


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_duplicate_and_no_orphan_after_random_changes(kubernetes, source):
    chance = random.Random(SEED)
    errors: list[Exception] = []
    workers = [Worker(errors), Worker(errors)]
    try:
        for number in range(PROFILE.discovery_changes):
            act(kubernetes, chance)
            if number % 25 == 0:
                disturb(kubernetes, chance)
                eventually("the workers follow, 20 changes behind", lambda: applied(source) > kubernetes.version - 20)
        eventually("all changes are applied", lambda: applied(source) >= kubernetes.version)
    finally:
        for worker in workers:
            worker.end()
    if errors:
        raise errors[0]
    live = Cluster.objects.filter(archived_at=None)
    assert Counter(live.values_list("name", flat=True)) == Counter(kubernetes.names())
    assert len(set(live.values_list("rest_url", flat=True))) == live.count()
    for cluster in live:
        name = cluster.name.removeprefix("prod/")
        assert cluster.labels == kubernetes.objects[FLINK, "prod", name]["metadata"]["labels"]
        assert cluster.enabled
    rows = FoundResource.objects.filter(gone_at=None)
    assert {str(row) for row in rows} == kubernetes.names()
    assert Cluster.objects.exclude(found_resources__gone_at=None).filter(archived_at=None).count() == 0


def test_a_worker_that_is_killed_before_it_stores_the_version_repeats_its_last_change(
    kubernetes, source, look, watch, monkeypatch
):
    kubernetes.put("a", labels={"n": "1"})
    look()
    kubernetes.put("a", labels={"n": "2"})

    class Killed(BaseException):
        pass

    store = watching._Watch._store

    def killed(watch: watching._Watch, **values: object) -> None:
        if watch._row.kind == FLINK and "version" in values:
            raise Killed
        store(watch, **values)

    with monkeypatch.context() as patch:
        patch.setattr(watching._Watch, "_store", killed)
        patch.setattr(threading, "excepthook", lambda args: None)
        patch.setattr(claims, "release", lambda *args: None)
        look(lasts_s=30)
    assert Cluster.objects.get().labels == {"n": "2"}, "the change was applied"
    assert DiscoverySource.objects.get().claimed_by, "and the lease is still held"
    versions = list(source.watched_kinds.filter(kind=FLINK).values_list("version", flat=True))
    assert versions == ["1001"]
    kubernetes.put("b")
    DiscoverySource.objects.update(claimed_until=clock.now())
    watch()
    assert Cluster.objects.count() == 2
    assert Cluster.objects.get(name="prod/a").labels == {"n": "2"}
    assert source.watched_kinds.get(kind=FLINK).version == str(kubernetes.version)


def test_a_worker_whose_lease_has_expired_changes_nothing(source):
    [claim] = claim_due(clock.now())
    assert claim_due(clock.now()) == [], "one worker at a time"
    DiscoverySource.objects.update(claimed_until=clock.now())
    [successor] = claim_due(clock.now())
    found = Found(Key(FLINK, "prod", "a"), "uid", "1", "http://a-rest.prod:8081")
    with pytest.raises(ClaimLost):
        reconciling.apply(claim, found, clock.now())
    assert not Cluster.objects.exists()
    reconciling.apply(successor, found, clock.now())
    with pytest.raises(ClaimLost):
        reconciling.forget(claim, found.key, clock.now())
    claims.release(claim, clock.now())
    assert DiscoverySource.objects.get().claimed_by == successor.token


def test_a_source_that_is_switched_off_is_not_read(source):
    [claim] = claim_due(clock.now())
    DiscoverySource.objects.update(enabled=False)
    with pytest.raises(ClaimLost):
        claims.renew(claim, clock.now())
    DiscoverySource.objects.update(claimed_until=None)
    assert claim_due(clock.now()) == []
