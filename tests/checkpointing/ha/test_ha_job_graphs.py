from __future__ import annotations

import dataclasses
import json
import os
import stat

import pytest

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.ha.errors import JobGraphUnreadable, LeadershipLost
from checkpointing.ha.job_graphs import HandleJobGraphStore, StandaloneJobGraphStore
from checkpointing.ha.state_handles import InMemoryStateHandleStore
from checkpointing.ha.zookeeper_state_handles import ZooKeeperStateHandleStore
from checkpointing.ids import new_id
from checkpointing.model.job_graph import JobGraph


def graph(**changes):
    return dataclasses.replace(
        JobGraph(
            job_id=new_id(),
            name="wordcount",
            jar_id="1_wordcount.py",
            entry_class="wordcount:main",
            program_args=("--input", "/données"),
            configuration={"execution.checkpointing.interval": "5s"},
            submitted_ms=1_800_000_000_000,
        ),
        **changes,
    )


class FailingHandles(InMemoryStateHandleStore):
    error = None

    def add_and_lock(self, name, handle):
        if self.error:
            raise self.error
        super().add_and_lock(name, handle)


@pytest.fixture(params=["standalone", "handles", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def store(request, tmp_path):
    if request.param == "standalone":
        return StandaloneJobGraphStore()
    if request.param == "handles":
        return HandleJobGraphStore(InMemoryStateHandleStore(), tmp_path)
    handles = ZooKeeperStateHandleStore(request.getfixturevalue("connection"), "execution-plans")
    return HandleJobGraphStore(handles, tmp_path)


def test_stored_graph_is_recovered(store):
    submitted = graph()
    store.put(submitted)
    assert store.recover(submitted.job_id) == submitted
    assert list(store.job_ids()) == [submitted.job_id]


def test_other_accounts_cannot_read_files_that_may_contain_secrets(tmp_path):
    before = os.umask(0)
    try:
        HandleJobGraphStore(InMemoryStateHandleStore(), tmp_path).put(graph())
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*.json")] == [0o600]


def test_an_unknown_job_is_none(store):
    assert store.recover(new_id()) is None


def test_putting_again_replaces(store):
    first = graph()
    second = dataclasses.replace(first, savepoint_path="/savepoints/savepoint-1")
    store.put(first)
    store.put(second)
    assert store.recover(first.job_id) == second
    assert list(store.job_ids()) == [first.job_id]


def test_removing_forgets_the_job_and_may_be_repeated(store, tmp_path):
    submitted = graph()
    store.put(submitted)
    store.remove(submitted.job_id)
    store.remove(submitted.job_id)
    assert store.recover(submitted.job_id) is None
    assert list(store.job_ids()) == []
    assert list(tmp_path.glob("*.json")) == []


def test_a_released_job_is_kept(store):
    submitted = graph()
    store.put(submitted)
    store.release(submitted.job_id)
    assert list(store.job_ids()) == [submitted.job_id]


def test_only_the_newest_graph_keeps_its_file(tmp_path):
    store = HandleJobGraphStore(InMemoryStateHandleStore(), tmp_path)
    submitted = graph()
    store.put(submitted)
    store.put(submitted)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_refused_graph_leaves_no_file(tmp_path):
    handles = FailingHandles()
    handles.error = LeadershipLost("another leader rules")
    with pytest.raises(LeadershipLost):
        HandleJobGraphStore(handles, tmp_path).put(graph())
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_may_be_stored_keeps_its_file(tmp_path):
    handles = FailingHandles()
    handles.error = PossibleInconsistentState("no answer")
    with pytest.raises(PossibleInconsistentState):
        HandleJobGraphStore(handles, tmp_path).put(graph())
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("content", ["", "{", json.dumps({"version": 1, "graph": {"job_id": "x"}})])
def test_a_damaged_graph_is_named(tmp_path, content):
    store = HandleJobGraphStore(InMemoryStateHandleStore(), tmp_path)
    submitted = graph()
    store.put(submitted)
    next(tmp_path.iterdir()).write_text(content)
    with pytest.raises(JobGraphUnreadable, match=submitted.job_id):
        store.recover(submitted.job_id)


@pytest.mark.zookeeper
def test_another_job_manager_recovers_the_job_that_the_first_one_stored(connect, tmp_path):
    first = HandleJobGraphStore(ZooKeeperStateHandleStore(connect(), "execution-plans"), tmp_path)
    second = HandleJobGraphStore(ZooKeeperStateHandleStore(connect(), "execution-plans"), tmp_path)
    submitted = graph()
    first.put(submitted)
    assert second.recover(submitted.job_id) == submitted
    first.remove(submitted.job_id)
    assert second.recover(submitted.job_id) == submitted, "its lock keeps the graph"
    second.remove(submitted.job_id)
    assert list(first.job_ids()) == []
