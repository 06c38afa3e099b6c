from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from checkpointing.clock import ManualClock, SystemClock
from checkpointing.ha.attempts import StandaloneAttemptRegistry, ZooKeeperAttemptRegistry
from checkpointing.ha.driver_services import driver_services
from checkpointing.ha.errors import AttemptTaken, ConnectionUnavailable, LeadershipLost, ZooKeeperRefusal
from checkpointing.ha.zookeeper import ConnectionState, Create, Delete
from checkpointing.model.driver_spec import HighAvailabilitySpec

JOB_ID = "0123456789abcdef0123456789abcdef"

zookeeper = pytest.mark.zookeeper


@pytest.fixture
def job_manager(connection):
    return ZooKeeperAttemptRegistry(connection, SystemClock())


@pytest.fixture
def driver(connect):
    return lambda hosts=None, clock=None: ZooKeeperAttemptRegistry(connect(hosts), clock or SystemClock())


@zookeeper
def test_a_held_attempt_is_seen_until_it_is_released(driver, job_manager):
    assert job_manager.holder(JOB_ID) is None
    assert job_manager.wait_until_free(JOB_ID, 0)
    held = driver().hold(JOB_ID, 3)
    assert job_manager.holder(JOB_ID) == 3
    assert not job_manager.wait_until_free(JOB_ID, 0.05)
    held.release()
    held.release()
    assert job_manager.holder(JOB_ID) is None
    assert not held.lost


@zookeeper
def test_a_job_manager_that_saw_the_driver_die_need_not_wait_for_its_session(driver, job_manager):
    held = driver().hold(JOB_ID, 3)
    job_manager.free(JOB_ID, 2)
    assert job_manager.holder(JOB_ID) == 3, "only the attempt that is known to be dead"

    job_manager.free(JOB_ID, 3)
    job_manager.free(JOB_ID, 3)

    assert job_manager.wait_until_free(JOB_ID, 0)
    held.release()


@zookeeper
def test_a_former_leader_frees_no_attempt(driver, connection):
    former = ZooKeeperAttemptRegistry(connection, SystemClock(), lambda: "leader/of-an-earlier-term")
    held = driver().hold(JOB_ID, 3)

    with pytest.raises(LeadershipLost):
        former.free(JOB_ID, 3)

    assert former.holder(JOB_ID) == 3
    held.release()


@zookeeper
def test_only_one_attempt_of_a_job_is_claimed(driver):
    held = driver().hold(JOB_ID, 1)
    other = driver()
    with pytest.raises(AttemptTaken, match="attempt 1 "):
        other.hold(JOB_ID, 2)
    other.hold("f" * 32, 1).release()
    held.release()
    other.hold(JOB_ID, 2).release()


@zookeeper
def test_an_attempt_is_not_held_twice_by_two_drivers_of_the_same_number(driver):
    held = driver().hold(JOB_ID, 1)
    with pytest.raises(AttemptTaken):
        driver().hold(JOB_ID, 1)
    held.release()


@zookeeper
def test_waiting_ends_when_the_driver_ends(driver, job_manager):
    held = driver().hold(JOB_ID, 1)
    threading.Timer(0.1, held.release).start()
    assert job_manager.wait_until_free(JOB_ID, 20)


@zookeeper
def test_waiting_lasts_for_the_requested_time(driver, connection):
    """The timeout is measured on the job manager's clock, which stands still here."""
    held = driver().hold(JOB_ID, 1)
    threading.Timer(0.1, held.release).start()
    assert ZooKeeperAttemptRegistry(connection, ManualClock()).wait_until_free(JOB_ID, 0.5)


@zookeeper
def test_a_driver_whose_session_was_lost_is_notified_and_keeps_the_claim_of_its_successor(
    connect, driver, job_manager, expire_session
):
    connection = connect()
    held = ZooKeeperAttemptRegistry(connection, SystemClock()).hold(JOB_ID, 1)
    lost = threading.Event()
    held.on_lost(lost.set)
    expire_session(connection)
    assert lost.wait(20)
    assert held.lost
    assert job_manager.wait_until_free(JOB_ID, 20)
    told_again = threading.Event()
    held.on_lost(told_again.set)
    assert told_again.is_set()
    successor = driver().hold(JOB_ID, 2)
    held.release()
    assert job_manager.holder(JOB_ID) == 2
    successor.release()


@zookeeper
@pytest.mark.parametrize("successor", [1, 2])
def test_a_driver_does_not_confuse_its_claim_with_that_of_its_successor(driver, connection, job_manager, successor):
    """The claim may change hands unseen, and the successor may have the same attempt number."""
    held = driver().hold(JOB_ID, 1)
    lost = threading.Event()
    held.on_lost(lost.set)
    path = f"jobs/{JOB_ID}/attempt"
    claim = json.dumps({"attempt": successor}).encode()
    connection.commit([Delete(path), Create(path, claim, ephemeral=True)])
    assert lost.wait(20)
    assert held.lost
    held.release()
    assert job_manager.holder(JOB_ID) == successor


@zookeeper
@pytest.mark.parametrize("error", [RuntimeError("a mistake of ours"), ZooKeeperRefusal("no rights")], ids=repr)
def test_a_driver_whose_claim_cannot_be_read_stops_before_its_lease_ends(connect, error):
    connection = connect(session_timeout_s=5.0)
    held = ZooKeeperAttemptRegistry(connection, SystemClock()).hold(JOB_ID, 1)
    result = threading.Event()
    held.on_lost(lambda: result.set())

    def fail(path):
        raise error

    connection.confirm = fail
    assert result.wait(20)
    assert held.lost


@zookeeper
def test_one_failed_confirmation_keeps_the_claim(connect, eventually):
    connection = connect()
    held = ZooKeeperAttemptRegistry(connection, SystemClock()).hold(JOB_ID, 1)
    confirm, looks = connection.confirm, []

    def fail_once(path):
        looks.append(path)
        if len(looks) == 1:
            raise RuntimeError("a mistake of ours")
        confirm(path)

    connection.confirm = fail_once
    eventually(lambda: len(looks) >= 2)
    assert not held.lost
    held.release()


@zookeeper
def test_every_callback_of_a_lost_claim_runs_even_if_one_fails(driver, connection):
    held = driver().hold(JOB_ID, 1)
    result = threading.Event()
    held.on_lost(lambda: 1 / 0)
    held.on_lost(result.set)
    connection.delete(f"jobs/{JOB_ID}/attempt")
    assert result.wait(20)


@zookeeper
def test_a_disconnected_driver_stops_before_its_claim_expires(connect, job_manager, proxy, eventually):
    connection = connect(proxy.address, session_timeout_s=20.0)  # at its end, the driver has 5 s to stop
    held = ZooKeeperAttemptRegistry(connection, SystemClock()).hold(JOB_ID, 1)
    holders_when_lost = []
    result = threading.Event()

    def stop():
        holders_when_lost.append(job_manager.holder(JOB_ID))
        result.set()

    held.on_lost(stop)
    proxy.cut()
    eventually(lambda: connection.state is not ConnectionState.CONNECTED)
    assert not held.lost, "a short break costs nothing"
    assert result.wait(60)
    assert holders_when_lost == [1]
    assert job_manager.wait_until_free(JOB_ID, 60)


@zookeeper
def test_a_short_disconnection_does_not_end_the_attempt(connect, job_manager, proxy, eventually):
    connection = connect(proxy.address, session_timeout_s=10.0)
    held = ZooKeeperAttemptRegistry(connection, SystemClock()).hold(JOB_ID, 1)
    proxy.cut()
    eventually(lambda: connection.state is ConnectionState.SUSPENDED)
    proxy.heal()
    eventually(lambda: connection.state is ConnectionState.CONNECTED)
    assert not held.lost
    assert job_manager.holder(JOB_ID) == 1
    held.release()


@zookeeper
def test_a_driver_that_was_suspended_detects_the_expired_lease_at_once(connect):
    clock = ManualClock()
    connection = connect()
    held = ZooKeeperAttemptRegistry(connection, clock).hold(JOB_ID, 1)
    assert not held.lost
    clock.advance(connection.session_timeout_s)
    assert held.lost
    held.release()


@zookeeper
def test_the_callback_of_a_lost_claim_may_release_it(driver, connection):
    held = driver().hold(JOB_ID, 1)
    released = threading.Event()

    def release():
        held.release()
        released.set()

    held.on_lost(release)
    connection.delete(f"jobs/{JOB_ID}/attempt")
    assert released.wait(20)


@zookeeper
def test_no_callback_after_a_release(driver):
    held = driver().hold(JOB_ID, 1)
    result = threading.Event()
    held.on_lost(result.set)
    held.release()
    held.on_lost(result.set)
    assert not result.is_set()


@zookeeper
def test_the_claim_of_a_killed_driver_ends_with_its_session(root, zookeeper_hosts, job_manager):
    program = (
        "import sys; from checkpointing.ha.driver_services import driver_services\n"
        "from checkpointing.model.driver_spec import HighAvailabilitySpec\n"
        "services = driver_services(HighAvailabilitySpec(sys.argv[1], sys.argv[2], 5.0))\n"
        f"held = services.attempts.hold('{JOB_ID}', 1); print('held', flush=True); sys.stdin.read()"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program, zookeeper_hosts, root],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with driver:
        assert driver.stdout.readline() == b"held\n"
        assert job_manager.holder(JOB_ID) == 1
        os.kill(driver.pid, signal.SIGKILL)
    assert job_manager.wait_until_free(JOB_ID, 30)


@zookeeper
def test_a_driver_reports_a_missing_leader_and_a_missing_server(root, zookeeper_hosts):
    specification = HighAvailabilitySpec(zookeeper_hosts, root, 30.0)
    services = driver_services(specification)
    assert services.leader_retrieval.current() is None
    assert services.leader_retrieval.wait(0) is None
    services.close()


@zookeeper
def test_the_registry_reports_a_missing_server(connect, proxy, eventually):
    connection = connect(proxy.address, session_timeout_s=4.0, operation_timeout_s=0.5)
    registry = ZooKeeperAttemptRegistry(connection, SystemClock())
    proxy.cut()
    with pytest.raises(ConnectionUnavailable):
        registry.hold(JOB_ID, 1)


def test_a_standalone_registry_has_no_claims_and_relies_on_the_lease():
    registry = StandaloneAttemptRegistry()
    held = registry.hold(JOB_ID, 1)
    registry.hold(JOB_ID, 2)
    assert registry.holder(JOB_ID) is None
    assert registry.wait_until_free(JOB_ID, 0)
    assert not held.lost
    held.release()
