from __future__ import annotations

import pytest

from checkpointing.ha.errors import ConnectionUnavailable, LeadershipLost
from checkpointing.ha.job_results import JobResult
from checkpointing.ha.services import (
    HighAvailabilityMode,
    HighAvailabilitySettings,
    make_services,
    standalone_services,
    zookeeper_services,
)
from checkpointing.ha.zookeeper import ZooKeeperConnection
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.status import JobStatus
from dashboard.stack.ports import any_free

JOB_ID = "0123456789abcdef0123456789abcdef"
GRAPH = JobGraph(JOB_ID, "wordcount", "1_wordcount.py", "wordcount:main")


class Contender:
    def __init__(self):
        self.session_id = None

    def grant_leadership(self, session_id):
        self.session_id = session_id

    def revoke_leadership(self):
        self.session_id = None

    def on_error(self, error):
        raise error

    def on_fatal_error(self, error):
        raise error


@pytest.fixture
def make(request, root, tmp_path, files):
    """Return a function that creates job managers of one cluster, which share the storage directory and the root."""
    opened = []

    def make_job_manager(cluster_id="demo"):
        settings = HighAvailabilitySettings(
            storage_directory=tmp_path,
            mode=HighAvailabilityMode.ZOOKEEPER,
            hosts=request.getfixturevalue("zookeeper_hosts"),
            root=root,
            cluster_id=cluster_id,
            session_timeout_s=10.0,
        )
        services = make_services(settings, files.load)
        opened.append(services)
        return services

    yield make_job_manager
    for services in opened:
        services.close()


@pytest.mark.zookeeper
def test_a_new_leader_takes_over_graph_checkpoints_and_ids(make, files, eventually):
    first, second = make(), make()
    contenders = Contender(), Contender()
    first.leader_election.start(contenders[0])
    eventually(lambda: contenders[0].session_id)
    second.leader_election.start(contenders[1])
    first.job_graphs.put(GRAPH)
    recovery = first.recovery_factory.create(JOB_ID, 1)
    recovery.store.recover()
    for _ in range(3):
        recovery.store.add_checkpoint(files.completed(recovery.counter.get_and_increment()))
    with pytest.raises(LeadershipLost):
        second.recovery_factory.create(JOB_ID, 1)

    recovery.store.shutdown(JobStatus.SUSPENDED)
    recovery.counter.shutdown(JobStatus.SUSPENDED)
    first.close()

    eventually(lambda: contenders[1].session_id)
    assert list(second.job_graphs.job_ids()) == [JOB_ID]
    assert second.job_graphs.recover(JOB_ID) == GRAPH
    recovered = second.recovery_factory.create(JOB_ID, 1)
    recovered.store.recover()
    assert recovered.store.latest == files.completed(3)
    assert recovered.counter.get_and_increment() == 4


@pytest.mark.zookeeper
def test_writes_of_an_earlier_term_are_refused(make, files, eventually):
    services = make()
    contender = Contender()
    services.leader_election.start(contender)
    eventually(lambda: contender.session_id)
    stale = services.recovery_factory.create(JOB_ID, 1)
    first_term = contender.session_id
    services._connection.delete(services.leader_election.fence)
    eventually(lambda: contender.session_id not in (None, first_term))
    with pytest.raises(LeadershipLost):
        stale.store.add_checkpoint(files.completed(1))
    services.recovery_factory.create(JOB_ID, 1).store.add_checkpoint(files.completed(1))


@pytest.mark.zookeeper
def test_cleaning_up_leaves_nothing_of_the_job_and_may_be_repeated(make, files):
    services = make()
    recovery = services.recovery_factory.create(JOB_ID, 1)
    recovery.store.add_checkpoint(files.completed(recovery.counter.get_and_increment()))
    services.clean_up(JOB_ID)
    services.clean_up(JOB_ID)
    assert services._connection.children("jobs") == []


@pytest.mark.zookeeper
def test_cleaning_up_leaves_a_driver_that_still_ends_its_place(make):
    services = make()
    held = services.attempts.hold(JOB_ID, 1)
    services.clean_up(JOB_ID)
    assert services.attempts.holder(JOB_ID) == 1
    held.release()
    assert services._connection.children("jobs") == []


@pytest.mark.zookeeper
def test_clusters_under_one_root_do_not_see_each_other(make):
    first, second = make("first"), make("second")
    first.job_graphs.put(GRAPH)
    assert list(second.job_graphs.job_ids()) == []


@pytest.mark.zookeeper
def test_a_driver_gets_what_it_needs_to_find_the_leader(make, root, zookeeper_hosts):
    specification = make().driver_specification
    assert (specification.hosts, specification.root) == (zookeeper_hosts, f"{root}/demo")


@pytest.mark.zookeeper
def test_a_chroot_in_the_hosts_is_part_of_the_root(connection, root, zookeeper_hosts, tmp_path, files):
    services = zookeeper_services(f"{zookeeper_hosts}{root}", "/waymark", "demo", tmp_path, files.load)
    services.job_graphs.put(GRAPH)
    assert connection.children("waymark/demo/execution-plans") == [JOB_ID]
    services.close()


def test_a_standalone_process_starts_empty_but_keeps_results_of_ended_jobs(tmp_path, files):
    services = standalone_services(tmp_path, files.load)
    services.job_graphs.put(GRAPH)
    recovery = services.recovery_factory.create(JOB_ID, 1)
    recovery.store.add_checkpoint(files.completed(recovery.counter.get_and_increment()))
    services.job_results.create_dirty_result(JobResult(JOB_ID, "wordcount", JobStatus.FAILED, 1, 2))
    services.close()

    restarted = make_services(HighAvailabilitySettings(storage_directory=tmp_path), files.load)
    assert list(restarted.job_graphs.job_ids()) == []
    recovered = restarted.recovery_factory.create(JOB_ID, 1)
    recovered.store.recover()
    assert list(recovered.store.checkpoints) == []
    assert recovered.counter.get() == 1
    assert restarted.job_results.has_result(JOB_ID)
    assert restarted.driver_specification is None
    restarted.clean_up(JOB_ID)
    restarted.close()


def test_missing_settings_are_named(tmp_path):
    with pytest.raises(ValueError, match="needs the addresses"):
        HighAvailabilitySettings(tmp_path, HighAvailabilityMode.ZOOKEEPER)
    with pytest.raises(ValueError, match="cluster_id"):
        HighAvailabilitySettings(tmp_path, cluster_id="/")


def test_no_server_is_an_error_that_names_the_hosts():
    port = any_free()
    connection = ZooKeeperConnection(f"127.0.0.1:{port}", "/waymark", session_timeout_s=4.0)
    with pytest.raises(ConnectionUnavailable, match=str(port)):
        connection.start(timeout_s=0.5)
    connection.close()
