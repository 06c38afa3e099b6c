"""A driver finds the leader in ZooKeeper, and runs only while it holds its attempt there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from checkpointing.clock import SystemClock
from checkpointing.ha.attempts import ZooKeeperAttemptRegistry
from checkpointing.ha.leadership import LeaderInformation
from checkpointing.ha.zookeeper import Create, ZooKeeperConnection
from checkpointing.ha.zookeeper_leader_election import CONNECTION_INFO
from checkpointing.model.driver_spec import HighAvailabilitySpec
from checkpointing.model.messages import DriverState

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def specification(zookeeper_hosts: str) -> HighAvailabilitySpec:
    return HighAvailabilitySpec(zookeeper_hosts, f"/test-{uuid.uuid4().hex}", 6.0)


@pytest.fixture
def connection(specification: HighAvailabilitySpec) -> Iterator[ZooKeeperConnection]:
    made = ZooKeeperConnection(
        specification.hosts, specification.root, session_timeout_s=specification.session_timeout_s
    )
    made.start()
    yield made
    made.close()


@pytest.fixture
def registry(connection: ZooKeeperConnection) -> ZooKeeperAttemptRegistry:
    return ZooKeeperAttemptRegistry(connection, SystemClock())


def test_driver_finds_the_leader_and_releases_its_claim(
    job_manager: Any, drivers: Any, words: Any, specification: Any, connection: Any, registry: Any
) -> None:
    leader = LeaderInformation(job_manager.address, job_manager.session_id)
    connection.ensure(CONNECTION_INFO.rpartition("/")[0])
    connection.commit([Create(CONNECTION_INFO, leader.encode(), ephemeral=True)])
    driver = drivers.start(job_manager, "wordcount:nothing", words.arguments, high_availability=specification)
    job_manager.await_state(1, DriverState.FAILED)
    assert driver.process.wait(60) == 1
    assert registry.holder(job_manager.job_id) is None


def test_driver_does_not_start_while_another_attempt_runs(
    job_manager: Any, drivers: Any, words: Any, specification: Any, registry: Any
) -> None:
    held = registry.hold(job_manager.job_id, 1)
    driver = drivers.start(
        job_manager, "wordcount:wordcount", words.arguments, attempt=2, high_availability=specification
    )
    assert driver.process.wait(60) == 3
    assert "the attempt cannot be claimed" in driver.log
    assert not held.lost
    held.release()


def test_driver_ends_at_once_when_its_claim_is_lost(
    job_manager: Any, drivers: Any, words: Any, specification: Any, connection: Any, registry: Any, eventually: Any
) -> None:
    """No leader is known, so the driver waits. Its lease alone would not end it yet."""
    driver = drivers.start(job_manager, "wordcount:wordcount", words.arguments, high_availability=specification)
    eventually("the attempt is held", lambda: registry.holder(job_manager.job_id) == 1)
    connection.delete(f"jobs/{job_manager.job_id}/attempt")
    assert driver.process.wait(60) == 3
    assert "the claim on the attempt was lost" in driver.log
