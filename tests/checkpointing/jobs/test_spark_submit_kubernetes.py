"""The installed spark-submit with the launcher's arguments for Kubernetes: the pod that it creates, and its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpointing.jobs.launching import cluster
from checkpointing.jobs.launching.deployment import Site
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.model.driver_spec import DriverSpec
from tests.checkpointing.jobs.kubernetes_api import KubernetesApi
from tests.checkpointing.jobs.running_job_manager import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

JOB = "0123456789abcdef" * 2
SITE = Site(storage_is_shared=True, address="http://jobs.internal:8081")
LIMIT_S = 120.0


async def test_the_pod_reads_from_the_shared_storage_and_is_removed_with_its_attempt(
    tmp_path: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_KILL_S", 240.0)  # the limit of spark-submit --kill, which starts a JVM
    work = tmp_path / "work"
    with KubernetesApi().serving() as api:
        configuration = {
            "spark.master": api.master,
            "spark.submit.deployMode": "cluster",
            "spark.kubernetes.namespace": "streams",
            "spark.kubernetes.container.image": "spark:4.3.0",
            "spark.hadoop.fs.s3a.secret.key": "hidden",
        }
        launcher = LocalDriverLauncher(os.environ, lambda: java_home, tmp_path, site=SITE)
        process = launcher.launch(
            DriverSpec(JOB, "words", 3, "p.py", "p:main", (), 4, configuration, str(work), "t", SITE.address, 20.0)
        )
        await eventually(lambda: "ConfigMap" in api.objects or process_ended(process.last_log_lines()), LIMIT_S)
        [(path, pod)] = api.pods.items()
        [container] = pod["spec"]["containers"]
        await process.end(20.0)

    assert path == f"/api/v1/namespaces/streams/pods/waymark-{JOB}-3"
    assert api.deleted == [path]
    assert container["image"] == "spark:4.3.0"
    assert container["args"][-2:] == [f"local://{work}/submitted.py", f"{work}/driver.json"]
    assert "hidden" not in str(pod)
    properties = api.objects["ConfigMap"]["data"]["spark.properties"].replace("\\", "")
    assert f"spark.submit.pyFiles=local://{work}/checkpointing.zip\n" in properties
    assert "spark.sql.shuffle.partitions=4\n" in properties
    assert all((work / name).is_file() for name in ("submitted.py", "driver.json", "checkpointing.zip"))


def process_ended(log: str) -> bool:
    """Fail with the log if spark-submit failed, instead of waiting for a pod that is never created."""
    assert "Exception" not in log, log
    return False
