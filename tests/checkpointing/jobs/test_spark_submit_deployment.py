"""Where a job may run, and which settings are refused before a start."""

from __future__ import annotations

import pytest

from checkpointing.jobs.launching.deployment import (
    ClusterManager,
    DeployMode,
    Site,
    check_reachable,
    deployment_of,
)
from checkpointing.model.configuration import InvalidConfiguration

HERE = Site(storage_is_shared=False, address="http://127.0.0.1:8081", zookeeper_hosts="127.0.0.1:2181")
SHARED = Site(storage_is_shared=True, address="http://jobs.internal:8081", zookeeper_hosts="zk1:2181,zk2:2181")


@pytest.mark.parametrize(
    ("master", "manager"),
    [
        ("local", ClusterManager.LOCAL),
        ("local[4]", ClusterManager.LOCAL),
        ("local[*]", ClusterManager.LOCAL),
        ("local[2,4]", ClusterManager.LOCAL),
        ("spark://127.0.0.1:7077", ClusterManager.STANDALONE),
        ("spark://m1.internal:7077,m2.internal:7077", ClusterManager.STANDALONE),
        ("spark://[::1]:7077", ClusterManager.STANDALONE),
        ("yarn", ClusterManager.YARN),
        ("k8s://https://kube.internal:6443", ClusterManager.KUBERNETES),
        ("k8s://kube.internal:6443", ClusterManager.KUBERNETES),
    ],
)
def test_the_master_url_determines_the_cluster_manager(master: str, manager: ClusterManager) -> None:
    assert deployment_of({"spark.master": master}).manager is manager


@pytest.mark.parametrize("master", ["spark://host", "spark:/host:7077", "mesos://m:5050", "local[x]", "yarn-client"])
def test_an_unknown_master_is_refused_with_the_allowed_ones(master: str) -> None:
    with pytest.raises(InvalidConfiguration) as error:
        deployment_of({"spark.master": master})

    forms = "local[n], spark://host:port, yarn or k8s://https://host:port"
    assert str(error.value) == f"spark.master: {master!r} is not allowed; write {forms}"


def test_a_job_without_a_master_runs_on_the_default_one_else_on_as_many_cores_as_its_parallelism() -> None:
    assert deployment_of({}, default_master="yarn").master == "yarn"
    assert deployment_of({"spark.master": "local[1]"}, default_master="yarn").master == "local[1]"
    assert deployment_of({}, parallelism=3).master == "local[3]"
    assert deployment_of({}).master == "local[2]"


def test_the_driver_is_a_local_process_unless_the_job_requests_cluster_mode() -> None:
    assert deployment_of({"spark.master": "yarn"}).mode is DeployMode.CLIENT
    assert deployment_of({"spark.master": "yarn", "spark.submit.deployMode": "cluster"}).driver_is_in_the_cluster


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077"])
def test_cluster_mode_is_refused_where_spark_has_none_for_python(master: str) -> None:
    with pytest.raises(InvalidConfiguration, match="only YARN and Kubernetes run Python drivers in the cluster"):
        deployment_of({"spark.master": master, "spark.submit.deployMode": "cluster"})


def test_an_unknown_deploy_mode_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"spark.submit.deployMode: 'remote' is not allowed; client or"):
        deployment_of({"spark.master": "yarn", "spark.submit.deployMode": "remote"})


@pytest.mark.parametrize(
    "master", ["local[2]", "spark://127.0.0.1:7077", "spark://localhost:7077", "spark://[::1]:7077"]
)
def test_executors_on_this_machine_need_no_shared_storage(master: str) -> None:
    check_reachable(deployment_of({"spark.master": master}), HERE)


@pytest.mark.parametrize(
    "master",
    ["spark://m1.internal:7077", "spark://127.0.0.1:7077,m2.internal:7077", "yarn", "k8s://kube.internal:6443"],
)
def test_executors_on_other_machines_are_refused_until_the_storage_is_declared_as_shared(master: str) -> None:
    deployment = deployment_of({"spark.master": master})

    with pytest.raises(InvalidConfiguration, match="WAYMARK_SHARED_STORAGE=true"):
        check_reachable(deployment, HERE)
    check_reachable(deployment, Site(storage_is_shared=True, address=HERE.address))


@pytest.mark.parametrize(
    ("site", "name"),
    [
        (Site(True, "http://127.0.0.1:8081", "zk1:2181"), "WAYMARK_JOBMANAGER_ADDRESS=http://127.0.0.1:8081"),
        (Site(True, "http://jobs.internal:8081", "zk1:2181,127.0.0.1:2182"), "ZOOKEEPER_HOSTS=127.0.0.1:2182"),
    ],
)
def test_a_driver_in_the_cluster_must_be_able_to_reach_the_job_manager_and_zookeeper(site: Site, name: str) -> None:
    deployment = deployment_of({"spark.master": "yarn", "spark.submit.deployMode": "cluster"})

    with pytest.raises(InvalidConfiguration, match=name):
        check_reachable(deployment, site)
    check_reachable(deployment, SHARED)
