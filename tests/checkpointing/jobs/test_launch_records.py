"""The launch of an ended job as the next job manager shows it: complete at `/launch`, without secrets at `/config`."""

from __future__ import annotations

import pytest

from tests.checkpointing.jobs.cluster import Cluster, leads

pytestmark = pytest.mark.zookeeper

SECRETS = {"spark.hadoop.fs.s3a.secret.key": "abc123"}
ARGUMENTS = ["--password=abc123"]


async def ended_job(cluster: Cluster) -> str:
    async with cluster.job_manager() as first:
        await leads(first)
        job_id = await first.submit_running(SECRETS, programArgsList=ARGUMENTS)
        await first.cancel(job_id)
        await first.until(job_id, "CANCELED")
    return job_id


async def test_the_next_job_manager_hides_the_secrets_of_an_ended_job(cluster: Cluster) -> None:
    job_id = await ended_job(cluster)

    async with cluster.job_manager() as second:
        await leads(second)
        shown = await second.get(f"/jobs/{job_id}/config")
        launch = await second.get(f"/jobs/{job_id}/launch")

    assert "abc123" not in str(shown)
    assert (launch["flinkConfiguration"], launch["programArgsList"]) == (SECRETS, ARGUMENTS)
