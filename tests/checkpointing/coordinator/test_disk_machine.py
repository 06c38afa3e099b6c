"""Random runs of jobs over real files: IDs ascend, no needed file is lost, none leaks, the counts are consistent."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from checkpointing.ha.checkpoint_id_counter import CheckpointIDCounter, ZooKeeperCheckpointIDCounter
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore
from checkpointing.ha.zookeeper import ZooKeeperConnection
from checkpointing.ha.zookeeper_state_handles import ZooKeeperStateHandleStore
from checkpointing.storage import read_metadata
from tests.checkpointing.coordinator.disk_machine import DiskMachine
from tests.checkpointing.coordinator.job_on_disk import OpenStores, surviving_stores
from tests.profile import examples


class SurvivingStoresMachine(DiskMachine):
    def stores(self) -> OpenStores:
        return surviving_stores()


TestSurvivingStoresMachine = SurvivingStoresMachine.TestCase
TestSurvivingStoresMachine.settings = settings(
    max_examples=examples(25),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class ZooKeeperStores:
    """Stores in ZooKeeper. Each job manager has a session, and opening the stores closes the session of a dead one."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._root = f"/machine-{uuid.uuid4().hex}"
        self._connection: ZooKeeperConnection | None = None

    def open(self, job_id: str, num_retained: int) -> tuple[HandleCompletedCheckpointStore, CheckpointIDCounter]:
        self.close()
        self._connection = ZooKeeperConnection(self._hosts, self._root, session_timeout_s=10)
        self._connection.start()
        job = f"jobs/{job_id}"
        handles = ZooKeeperStateHandleStore(self._connection, f"{job}/checkpoints")
        counter = ZooKeeperCheckpointIDCounter(self._connection, f"{job}/checkpoint_id_counter")
        return HandleCompletedCheckpointStore(handles, num_retained, read_metadata), counter

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


@pytest.mark.zookeeper
def test_random_histories_of_a_job_with_a_real_zookeeper(zookeeper_hosts: str) -> None:
    class ZooKeeperMachine(DiskMachine):
        def stores(self) -> OpenStores:
            self.zookeeper = ZooKeeperStores(zookeeper_hosts)
            return self.zookeeper.open

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                self.zookeeper.close()

    few = settings(TestSurvivingStoresMachine.settings, max_examples=examples(12), stateful_step_count=30)
    run_state_machine_as_test(ZooKeeperMachine, settings=few)
