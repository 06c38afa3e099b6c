"""Foreign or invalid nodes below Waymark's root, at every place that Waymark reads.

Each one causes a specific error, or is reported and skipped. Retained checkpoints are kept, and so are foreign nodes.
"""

from __future__ import annotations

import json
import logging

import pytest

from checkpointing.clock import SystemClock
from checkpointing.ha.attempts import ZooKeeperAttemptRegistry
from checkpointing.ha.checkpoint_id_counter import ZooKeeperCheckpointIDCounter
from checkpointing.ha.completed_checkpoints import handle_name
from checkpointing.ha.errors import (
    AttemptUnreadable,
    CheckpointsUnreadable,
    CounterUnreadable,
    JobGraphUnreadable,
    NodeNotEmpty,
)
from checkpointing.ha.leadership import LeaderInformation
from checkpointing.ha.services import ZooKeeperServices
from checkpointing.ha.zookeeper import Create, SetData
from checkpointing.ha.zookeeper_leader_election import CONNECTION_INFO, LATCH, ZooKeeperLeaderElection
from checkpointing.ha.zookeeper_leader_retrieval import ZooKeeperLeaderRetrieval
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.status import JobStatus

pytestmark = pytest.mark.zookeeper

JOB_ID = "0123456789abcdef0123456789abcdef"
JOB = f"jobs/{JOB_ID}"
CHECKPOINTS = f"{JOB}/checkpoints"
COUNTER = f"{JOB}/checkpoint_id_counter"
GRAPH = JobGraph(JOB_ID, "wordcount", "1_wordcount.py", "wordcount:main")

GARBAGE = [b"", b"\xac\xed\x00\x05", b"[]", b"7", b'"text"', b"null", b"{}", b'{"version":1}', b"[" * 900]


@pytest.fixture
def services(connection, tmp_path, files):
    return ZooKeeperServices(connection, tmp_path, files.load, None, SystemClock())


@pytest.fixture
def recovery(services):
    return services.recovery_factory.create(JOB_ID, 2)


@pytest.fixture
def leader(connection):
    """Return a contender that confirms each term, and records errors."""

    class Leader:
        def __init__(self):
            self.election = ZooKeeperLeaderElection(connection, SystemClock())
            self.terms = []
            self.errors = []

        def grant_leadership(self, session_id):
            self.terms.append(session_id)
            self.election.confirm_leadership(session_id, "http://127.0.0.1:1")

        def revoke_leadership(self):
            """Do nothing, because the next grant follows."""

        def on_error(self, error):
            self.errors.append(error)

        def on_fatal_error(self, error):
            self.errors.append(error)

        @property
        def leads(self):
            return bool(self.terms) and self.election.has_leadership(self.terms[-1])

    leader = Leader()
    yield leader
    leader.election.close()


def test_foreign_children_of_the_checkpoints_are_reported_skipped_and_kept(connection, recovery, files, caplog):
    recovery.store.add_checkpoint(files.completed(1))
    for name in ("notes", "1", f"{handle_name(2)}.bak", handle_name(3)[1:]):
        connection.ensure(f"{CHECKPOINTS}/{name}/locks")
    with caplog.at_level(logging.WARNING):
        recovery.store.recover()
    assert [kept.checkpoint_id for kept in recovery.store.checkpoints] == [1]
    assert list(recovery.store.unreadable) == []
    assert f"{CHECKPOINTS}/notes is skipped" in caplog.text

    recovery.store.shutdown(JobStatus.FINISHED)
    assert len(connection.children(CHECKPOINTS)) == 4, "only our own went"


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_invalid_handle_is_reported_and_kept_and_the_others_are_used(connection, recovery, files, garbage):
    recovery.store.add_checkpoint(files.completed(1))
    recovery.store.add_checkpoint(files.completed(2))
    connection.commit([SetData(f"{CHECKPOINTS}/{handle_name(1)}", garbage, -1)])
    recovery.store.recover()
    assert [kept.checkpoint_id for kept in recovery.store.checkpoints] == [2]
    assert [left_out.name for left_out in recovery.store.unreadable] == [handle_name(1)]
    recovery.store.shutdown(JobStatus.SUSPENDED)
    assert connection.get(f"{CHECKPOINTS}/{handle_name(1)}").data == garbage


def test_invalid_handles_fail_the_recovery_and_are_kept(connection, services, recovery, files):
    recovery.store.add_checkpoint(files.completed(1))
    connection.commit([SetData(f"{CHECKPOINTS}/{handle_name(1)}", b"?", -1)])
    with pytest.raises(CheckpointsUnreadable, match="1: JSONDecodeError"):
        services.recovery_factory.create(JOB_ID, 2).store.recover()
    assert connection.children(CHECKPOINTS) == [handle_name(1)]


def test_a_foreign_lock_keeps_its_handle_and_the_files_behind_it(connection, recovery, files):
    recovery.store.add_checkpoint(files.completed(1))
    foreign = f"{CHECKPOINTS}/{handle_name(1)}/locks/somebody"
    connection.commit([Create(foreign)])
    assert recovery.store.add_checkpoint(files.completed(2)) == []
    assert recovery.store.add_checkpoint(files.completed(3)) == [], "its files stay"
    recovery.store.shutdown(JobStatus.FINISHED)
    assert connection.children(CHECKPOINTS) == [handle_name(1)]
    assert connection.find(foreign) is not None


def test_foreign_node_next_to_the_locks_keeps_the_handle(connection, recovery, files):
    recovery.store.add_checkpoint(files.completed(1))
    beside = f"{CHECKPOINTS}/{handle_name(1)}/notes"
    connection.commit([Create(beside)])
    recovery.store.add_checkpoint(files.completed(2))
    assert recovery.store.add_checkpoint(files.completed(3)) == [], "its files stay"
    assert connection.find(beside) is not None


def test_a_name_used_by_a_node_without_locks_is_refused_and_the_node_kept(connection, recovery, files):
    connection.ensure(f"{CHECKPOINTS}/{handle_name(1)}/notes")
    with pytest.raises(Exception, match="NodeExists"):
        recovery.store.add_checkpoint(files.completed(1))
    recovery.store.recover()
    assert list(recovery.store.checkpoints) == []
    recovery.store.shutdown(JobStatus.FINISHED)
    assert connection.find(f"{CHECKPOINTS}/{handle_name(1)}/notes") is not None


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"7", b"\x00\x00\x00\x00\x07", b"\xff\xff\xff\xff"])
def test_an_invalid_counter_returns_no_id_and_is_not_overwritten(connection, garbage):
    connection.ensure(JOB)
    connection.commit([Create(COUNTER, garbage)])
    counter = ZooKeeperCheckpointIDCounter(connection, COUNTER)
    for take in (counter.get, counter.get_and_increment, lambda: counter.set_count(5)):
        with pytest.raises(CounterUnreadable, match=COUNTER):
            take()
    assert connection.get(COUNTER).data == garbage


def test_cleaning_up_a_job_keeps_foreign_nodes_and_removes_the_rest(connection, services, recovery, files):
    recovery.store.add_checkpoint(files.completed(recovery.counter.get_and_increment()))
    for foreign in (f"{CHECKPOINTS}/notes", f"{JOB}/notes"):
        connection.commit([Create(foreign)])
    services.clean_up(JOB_ID)
    assert connection.children(JOB) == ["checkpoints", "notes"]
    assert connection.children(CHECKPOINTS) == ["notes"]


def test_the_clean_up_reports_foreign_nodes_below_the_counter_and_removes_none(connection, services, recovery):
    recovery.counter.get_and_increment()
    connection.commit([Create(f"{COUNTER}/notes")])
    with pytest.raises(NodeNotEmpty, match=COUNTER):
        services.clean_up(JOB_ID)
    assert connection.children(COUNTER) == ["notes"]


@pytest.mark.parametrize("garbage", [*GARBAGE, b'{"attempt":"x"}', b'{"attempt":null}'])
def test_foreign_node_of_an_attempt_blocks_new_attempts(connection, connect, garbage):
    connection.ensure(JOB)
    connection.commit([Create(f"{JOB}/attempt", garbage, ephemeral=True)])
    registry = ZooKeeperAttemptRegistry(connect(), SystemClock())
    for ask in (
        registry.holder,
        lambda job_id: registry.wait_until_free(job_id, 0),
        lambda job_id: registry.hold(job_id, 1),
    ):
        with pytest.raises(AttemptUnreadable, match=f"{JOB}/attempt"):
            ask(JOB_ID)
    assert connection.get(f"{JOB}/attempt").data == garbage


def test_an_attempt_node_without_a_session_is_not_a_claim_of_a_driver(connection):
    connection.ensure(JOB)
    connection.commit([Create(f"{JOB}/attempt", b'{"attempt":1}')])
    with pytest.raises(AttemptUnreadable):
        ZooKeeperAttemptRegistry(connection, SystemClock()).wait_until_free(JOB_ID, 0)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"version":1}',
        '{"version":2,"graph":{}}',
        '{"version":1,"graph":[]}',
        '{"version":1,"graph":{"job_id":"x"}}',
    ],
)
def test_an_invalid_graph_is_an_error_with_its_file_name_and_is_kept(services, tmp_path, content):
    services.job_graphs.put(GRAPH)
    [file] = (tmp_path / "execution-plans").iterdir()
    file.write_text(content)
    with pytest.raises(JobGraphUnreadable, match=str(file)):
        services.job_graphs.recover(JOB_ID)
    assert list(services.job_graphs.job_ids()) == [JOB_ID]
    assert file.exists()


@pytest.mark.parametrize(
    "change", [{"job_id": "f" * 32}, {"configuration": ["a"]}, {"name": 7}, {"program_args": [1]}, {"unheard_of": 1}]
)
def test_a_graph_of_another_shape_or_job_is_an_error(services, tmp_path, change):
    services.job_graphs.put(GRAPH)
    [file] = (tmp_path / "execution-plans").iterdir()
    file.write_text(json.dumps({"version": 1, "graph": {**GRAPH.to_json(), **change}}))
    with pytest.raises(JobGraphUnreadable):
        services.job_graphs.recover(JOB_ID)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_invalid_handle_of_a_graph_is_an_error_and_the_other_jobs_are_found(connection, services, garbage):
    services.job_graphs.put(GRAPH)
    other = JobGraph("f" * 32, "other", "1_wordcount.py", "wordcount:main")
    services.job_graphs.put(other)
    connection.commit([SetData(f"execution-plans/{JOB_ID}", garbage, -1)])
    connection.ensure("execution-plans/notes/locks")
    assert list(services.job_graphs.job_ids()) == [JOB_ID, "f" * 32]
    with pytest.raises(JobGraphUnreadable, match=JOB_ID):
        services.job_graphs.recover(JOB_ID)
    assert services.job_graphs.recover("f" * 32) == other
    with pytest.raises(JobGraphUnreadable):
        services.job_graphs.remove(JOB_ID)
    assert connection.get(f"execution-plans/{JOB_ID}").data == garbage


def test_foreign_nodes_among_the_contenders_neither_lead_nor_block(connection, leader, eventually):
    foreign = ["notes", "_c_x-latch-0000000000", "_c_x-latch-000000000x", "-latch-0000000001"]
    connection.ensure(LATCH)
    connection.commit([Create(f"{LATCH}/{name}", b"?") for name in foreign])
    leader.election.start(leader)
    eventually(lambda: leader.leads)
    assert leader.errors == []
    assert set(foreign) < set(connection.children(LATCH))


def test_a_living_contender_before_a_foreign_node_still_leads(connection, connect, leader, eventually):
    first = connect()
    first.ensure(LATCH)
    before = first.create_sequential(f"{LATCH}/_c_other-latch-")
    connection.commit([Create(f"{LATCH}/_c_x-latch-0000000005")])
    for _ in range(6):
        connection.delete(f"{LATCH}/{connection.create_sequential(f'{LATCH}/skipped-')}")
    leader.election.start(leader)
    eventually(lambda: len(connection.children(LATCH)) == 3)
    assert leader.terms == []
    first.delete(f"{LATCH}/{before}")
    eventually(lambda: leader.leads)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_invalid_leader_address_is_not_a_leader(connection, leader, eventually, garbage):
    connection.ensure(CONNECTION_INFO.rpartition("/")[0])
    connection.commit([Create(CONNECTION_INFO, garbage)])
    retrieval = ZooKeeperLeaderRetrieval(connection, SystemClock())
    assert retrieval.current() is None
    leader.election.start(leader)
    assert retrieval.wait(10) == LeaderInformation("http://127.0.0.1:1", leader.terms[-1])


def test_the_leader_reports_foreign_nodes_below_its_node_and_continues(connection, leader, eventually):
    connection.ensure(f"{CONNECTION_INFO}/notes")
    leader.election.start(leader)
    eventually(lambda: leader.errors)
    assert isinstance(leader.errors[0], NodeNotEmpty)
    assert leader.leads
    assert len(leader.terms) == 1, "the term goes on"
    connection.delete(f"{CONNECTION_INFO}/notes")
    retrieval = ZooKeeperLeaderRetrieval(connection, SystemClock())
    assert retrieval.wait(10) == LeaderInformation("http://127.0.0.1:1", leader.terms[-1])
