"""Random applications of YARN, with two workers and a change of the active ResourceManager: no duplicate, no orphan."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

from monitoring.models import Cluster, DiscoverySource, FoundResource, Job
from tests.monitoring.discovery.played_yarn import PlayedYarn
from tests.monitoring.discovery.workers import Worker
from tests.profile import PROFILE, SEED
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.long, pytest.mark.django_db(transaction=True), pytest.mark.timeout(3600)]
NAMES = 25
ENDS = (("FINISHED", "SUCCEEDED"), ("FINISHED", "FAILED"), ("FAILED", "FAILED"), ("KILLED", "KILLED"))


def act(yarn: PlayedYarn, chance: random.Random) -> None:
    """Start an application, end, redeploy, move or forget one, or start a second one with its name."""
    live = list(yarn.live())
    action = chance.randrange(7) if live else 0
    id_ = chance.choice(live) if live else ""
    match action:
        case 0 | 1:
            yarn.start(f"job-{chance.randrange(NAMES)}", chance.choice(("RUNNING", "ACCEPTED")))
        case 2:
            yarn.end(id_, *chance.choice(ENDS))
        case 3:
            yarn.end(id_, *chance.choice(ENDS))
            yarn.start(yarn.apps[id_]["name"])
        case 4:
            yarn.start(yarn.apps[id_]["name"])
        case 5:
            yarn.apps[id_] = yarn.apps[id_] | {"queue": chance.choice(("root.prod", "root.fast"))}
        case 6:
            yarn.apps.pop(id_)
    if chance.random() < 0.2:
        for waiting in [id_ for id_, app in yarn.live().items() if app["state"] == "ACCEPTED"]:
            yarn.run(waiting)
            yarn.apps[waiting]["amRPCAddress"] = f"host{waiting[-4:]}:8081"


def follows(yarn: PlayedYarn) -> bool:
    running = FoundResource.objects.filter(gone_at=None, state__application__in=("RUNNING", "ACCEPTED"))
    return set(running.values_list("uid", flat=True)) == set(yarn.live())


def test_each_application_that_runs_has_one_cluster(yarn, yarn_source, monkeypatch):
    monkeypatch.setattr("monitoring.discovery.yarn.polling.POLL_S", 0.1)
    # A poll fails if the active ResourceManager changes meanwhile. The test does not wait 30 s after each failure.
    monkeypatch.setattr("monitoring.discovery.rounds.AGAIN_AFTER", timedelta(seconds=0.1))
    chance = random.Random(SEED)
    errors: list[Exception] = []
    with PlayedYarn(standby=yarn.url).serving() as other:
        other.apps = yarn.apps
        DiscoverySource.objects.update(addresses=f"{other.url},{yarn.url}")
        workers = [Worker(errors), Worker(errors)]
        try:
            for number in range(PROFILE.discovery_changes):
                act(yarn, chance)
                if number % 20 == 0:
                    yarn.standby, other.standby = (other.url, "") if chance.random() < 0.5 else ("", yarn.url)
                    eventually("the workers follow", lambda: follows(yarn))
                    for cluster in Cluster.objects.filter(archived_at=None, jobs=None)[:1]:
                        Job.objects.get_or_create(cluster=cluster, name="job")
                if number % 500 == 499:
                    for id_ in [id_ for id_, app in yarn.apps.items() if app["finishedTime"]]:
                        del yarn.apps[id_]
            eventually("the workers follow", lambda: follows(yarn))
        finally:
            for worker in workers:
                worker.end()
    if errors:
        raise errors[0]
    rows = list(FoundResource.objects.filter(gone_at=None).select_related("cluster"))
    assert max(Counter(row.uid for row in rows).values()) == 1
    for row in rows:
        app = yarn.apps.get(row.uid)
        if row.state["application"] == "RUNNING":
            assert row.cluster is not None
            assert (row.cluster.rest_url, row.cluster.archived_at) == (f"http://{app['amRPCAddress']}", None)
            assert row.cluster.labels["queue"] == app["queue"]
    clusters = Counter(row.cluster_id for row in rows if row.cluster_id)
    assert set(clusters.values()) == {1}, "no cluster belongs to two applications"
    assert set(Cluster.objects.filter(archived_at=None).values_list("pk", flat=True)) == set(clusters)
