"""A real Flink whose address a simulated ResourceManager reports: its job is seen, and so is its savepoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitoring.discovery.rounds import Rounds
from monitoring.models import Cluster, DiscoverySource, Engine, SourceKind
from tests.monitoring.discovery.played_yarn import PlayedYarn
from tests.monitoring.flink.cluster import FlinkCluster
from tests.monitoring.flink.jobs import CONFIGURATION, CountJobs
from tests.monitoring.flink.waymark import Waymark

pytestmark = [pytest.mark.nightly, pytest.mark.django_db(transaction=True)]


def look() -> None:
    errors: list[Exception] = []
    rounds = Rounds(0.0)
    DiscoverySource.objects.update(next_look_at=None)
    rounds.start_due(lambda report: None, lambda name, error: errors.append(error))
    rounds.join(60)
    if errors:
        raise errors[0]


def test_the_job_of_a_found_application_is_seen_and_saved(flink: FlinkCluster, jar: bytes, tmp_path: Path) -> None:
    with PlayedYarn().serving() as yarn, CountJobs(flink, jar, tmp_path) as jobs, Waymark() as waymark:
        id_ = yarn.start("count", amRPCAddress=flink.url.removeprefix("http://"))
        pattern = SourceKind.YARN.usual_pattern
        DiscoverySource.objects.create(name="y", kind="yarn", addresses=yarn.url, address_pattern=pattern)
        look()
        cluster = Cluster.objects.get(name="root.prod/count")
        assert cluster.rest_url == flink.url
        jobs.start("count-job", configuration=CONFIGURATION)
        job = waymark.job("count-job")
        assert job.cluster == cluster
        waymark.until("a checkpoint is known", job.runs.get().checkpoints.filter(status="COMPLETED").exists)
        assert waymark.stopped_with_savepoint("count-job").path
        cluster.refresh_from_db()
        assert (cluster.engine, cluster.reachable) == (Engine.FLINK, True)
        yarn.end(id_, "FINISHED", "FAILED", "org.apache.flink.X: Could not execute application.")
        look()
        row = cluster.found_resources.get()
        assert row.state["final_status"] == "FAILED"
        assert row.problem == "YARN reports FAILED: Could not execute application."
