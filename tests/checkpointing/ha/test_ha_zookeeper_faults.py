"""Job manager processes that are killed or stopped, and ZooKeeper servers that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from checkpointing.ha.services import zookeeper_services
from tests.checkpointing.ha.leader_process import JOB_ID, Contender, checkpoint_at

pytestmark = pytest.mark.zookeeper

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def leader_process(zookeeper_hosts, root, tmp_path):
    """Yield a job manager in a separate process that has taken some checkpoints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.checkpointing.ha.leader_process", zookeeper_hosts, root, str(tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        for _ in range(20):
            line = process.stdout.readline()
            assert line, process.stderr.read()
        process.last_id_before = int(line)
        yield process
        process.kill()


@pytest.fixture
def start_standby(root, tmp_path):
    """Return a function that starts a contender, which is closed after the test."""
    opened = []

    def start(hosts):
        services = zookeeper_services(hosts, root, "demo", tmp_path, checkpoint_at, 10.0)
        opened.append(services)
        contender = Contender()
        services.leader_election.start(contender)
        return services, contender

    yield start
    for services in opened:
        services.close()


def test_a_leader_killed_during_checkpoints_loses_none_and_repeats_no_id(
    leader_process, start_standby, zookeeper_hosts
):
    services, contender = start_standby(zookeeper_hosts)
    os.kill(leader_process.pid, signal.SIGKILL)
    last_id = int([leader_process.last_id_before, *leader_process.stdout.read().split()][-1])

    contender.granted.get(timeout=30)
    recovery = services.recovery_factory.create(JOB_ID, 2)
    recovery.store.recover()
    assert recovery.store.latest_id in (last_id, last_id + 1), "what was reported complete is kept"
    assert recovery.counter.get_and_increment() > recovery.store.latest_id
    assert services.leader_retrieval.current() is None, "the dead leader's address went with it"


def test_a_stopped_leader_that_resumes_after_its_term_cannot_write(
    leader_process, start_standby, zookeeper_hosts, eventually
):
    services, contender = start_standby(zookeeper_hosts)
    os.kill(leader_process.pid, signal.SIGSTOP)
    contender.granted.get(timeout=30)
    recovery = services.recovery_factory.create(JOB_ID, 2)
    recovery.store.recover()
    next_id = recovery.counter.get()
    kept = [checkpoint.checkpoint_id for checkpoint in recovery.store.checkpoints]

    os.kill(leader_process.pid, signal.SIGCONT)

    _, errors = leader_process.communicate(timeout=60)
    assert "CounterUnavailable" in errors or "LeadershipLost" in errors or "PossibleInconsistentState" in errors
    assert recovery.counter.get() == next_id
    recovery.store.recover()
    assert [checkpoint.checkpoint_id for checkpoint in recovery.store.checkpoints] == kept


def test_a_restarted_server_has_one_leader_and_all_data(make_ensemble, start_standby, eventually):
    ensemble = make_ensemble(1)
    first, first_contender = start_standby(ensemble.hosts)
    session_id = first_contender.granted.get(timeout=30)
    second, second_contender = start_standby(ensemble.hosts)
    recovery = first.recovery_factory.create(JOB_ID, 1)
    recovery.store.add_checkpoint(checkpoint_at(f"/checkpoints/chk-{recovery.counter.get_and_increment()}"))

    ensemble.kill(0)
    eventually(lambda: not first.leader_election.has_leadership(session_id))
    ensemble.start_server(0)
    ensemble.wait_until_serving(0)

    job_managers = [(first, first_contender), (second, second_contender)]

    def leaders():
        return [
            services
            for services, contender in job_managers
            if services.leader_election.has_leadership(contender.session_id)
        ]

    eventually(lambda: len(leaders()) == 1)
    [leader] = leaders()
    recovered = leader.recovery_factory.create(JOB_ID, 1)
    recovered.store.recover()
    assert recovered.store.latest_id == 1
    assert recovered.counter.get_and_increment() == 2
