"""An ensemble of three loses servers while two job managers store checkpoints and a driver holds its attempt."""

from __future__ import annotations

import contextlib
import threading
import uuid
from dataclasses import replace

import pytest

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.ha.driver_services import driver_services
from checkpointing.ha.errors import ConnectionUnavailable, CounterUnavailable, HighAvailabilityError
from checkpointing.ha.services import zookeeper_services
from tests.checkpointing.ha.leader_process import JOB_ID, Contender, checkpoint_at
from tests.zookeeper_ensemble import ZooKeeperEnsemble

pytestmark = pytest.mark.zookeeper

# More than a test takes, so that all added checkpoints stay and can be counted.
ALL = 100_000
PAUSE_S = 0.05


class JobManager(Contender):
    """A job manager that takes checkpoints while it leads, and records the result of each."""

    def __init__(self, services):
        super().__init__()
        self.services = services
        self.ids = []
        self.acknowledged = []
        self.unknown = []
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        services.leader_election.start(self)
        self._thread.start()

    @property
    def leads(self):
        return self.services.leader_election.has_leadership(self.session_id)

    def stop(self):
        self.stopped.set()
        self._thread.join()
        self.services.close()

    def _run(self):
        while not self.stopped.wait(PAUSE_S):
            try:
                self._take_checkpoints(self.session_id)
            except (HighAvailabilityError, PossibleInconsistentState):
                continue

    def _take_checkpoints(self, term):
        recovery = self.services.recovery_factory.create(JOB_ID, ALL)
        recovery.store.recover()
        while not self.stopped.wait(PAUSE_S) and self.services.leader_election.has_leadership(term):
            number = recovery.counter.get_and_increment()
            assert number > recovery.store.latest_id
            self.ids.append(number)
            try:
                recovery.store.add_checkpoint(checkpoint_at(f"/checkpoints/chk-{number}"))
            except PossibleInconsistentState:
                self.unknown.append(number)
                raise
            self.acknowledged.append(number)


@pytest.fixture(scope="module")
def shared_ensemble(tmp_path_factory, java_home):
    ensemble = ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble"), java_home, 3)
    ensemble.start()
    yield ensemble
    ensemble.stop()


@pytest.fixture
def ensemble(shared_ensemble):
    yield shared_ensemble
    shared_ensemble.mend()


@pytest.fixture
def connect_services(ensemble, tmp_path):
    root = f"/test-{uuid.uuid4().hex}"
    return lambda: zookeeper_services(ensemble.hosts, root, "demo", tmp_path, checkpoint_at, 4.0)


@pytest.fixture
def job_managers(connect_services):
    both = [JobManager(connect_services()) for _ in range(2)]
    yield both
    for job_manager in both:
        job_manager.stop()


@pytest.fixture
def driver(job_managers):
    # The lease is longer than the election of another server takes.
    services = driver_services(replace(job_managers[0].services.driver_specification, session_timeout_s=30.0))
    yield services
    services.close()


def taken(job_managers):
    return sum(len(job_manager.acknowledged) for job_manager in job_managers)


def await_progress(job_managers, eventually):
    so_far = taken(job_managers)
    eventually(lambda: taken(job_managers) >= so_far + 3, 60)


def holder(job_manager):
    with contextlib.suppress(ConnectionUnavailable):
        return job_manager.services.attempts.holder(JOB_ID)


def check_account(job_managers, connect_services):
    """Assert that no ID was used twice, and that the store has the checkpoints that it reported as added."""
    for job_manager in job_managers:
        job_manager.stop()
        assert job_manager.ids == sorted(set(job_manager.ids))
    first, second = job_managers
    assert not set(first.ids) & set(second.ids), "an id was given twice"
    acknowledged = {*first.acknowledged, *second.acknowledged}
    observer = connect_services()
    recovery = observer.recovery_factory.create(JOB_ID, ALL)
    recovery.store.recover()
    stored = {checkpoint.checkpoint_id for checkpoint in recovery.store.checkpoints}
    next_id = recovery.counter.get()
    observer.close()
    assert acknowledged <= stored <= {*acknowledged, *first.unknown, *second.unknown}
    assert next_id > max(stored)


def test_the_loss_of_any_one_server_stops_nothing(ensemble, job_managers, driver, connect_services, eventually):
    await_progress(job_managers, eventually)
    held = driver.attempts.hold(JOB_ID, 1)
    for server in (ensemble.leader(), *(index for index in range(3) if index != ensemble.leader())):
        ensemble.kill(server)
        await_progress(job_managers, eventually)
        assert not held.lost
        eventually(lambda: holder(job_managers[0]) == 1)
        ensemble.mend()
    held.release()
    assert driver.attempts.wait_until_free(JOB_ID, 60)
    check_account(job_managers, connect_services)


@pytest.mark.nightly
def test_all_work_stops_without_a_quorum_and_continues_with_one(
    ensemble, job_managers, driver, connect_services, eventually
):
    await_progress(job_managers, eventually)
    held = driver.attempts.hold(JOB_ID, 1)
    [leader] = [job_manager for job_manager in job_managers if job_manager.leads]
    recovery = leader.services.recovery_factory.create(JOB_ID, ALL)
    number = recovery.counter.get_and_increment()
    for server in (ensemble.leader(), next(index for index in ensemble.running if index != ensemble.leader())):
        ensemble.kill(server)

    eventually(lambda: not any(job_manager.leads for job_manager in job_managers))
    so_far = [list(job_manager.acknowledged) for job_manager in job_managers]
    with pytest.raises(CounterUnavailable):
        recovery.counter.get_and_increment()
    # Not "refused", because the next server that answers may still execute the request.
    with pytest.raises(PossibleInconsistentState):
        recovery.store.add_checkpoint(checkpoint_at(f"/checkpoints/chk-{number}"))
    with pytest.raises(ConnectionUnavailable):
        leader.services.attempts.holder(JOB_ID)
    assert leader.services.leader_retrieval.current() is None
    assert [job_manager.acknowledged for job_manager in job_managers] == so_far

    ensemble.mend()

    await_progress(job_managers, eventually)
    eventually(lambda: held.lost or leader.services.attempts.holder(JOB_ID) == 1)
    held.release()
    assert leader.services.attempts.wait_until_free(JOB_ID, 60)
    driver.attempts.hold(JOB_ID, 2).release()
    leader.unknown.append(number)
    check_account(job_managers, connect_services)
