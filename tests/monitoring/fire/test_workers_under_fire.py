"""Real workers, real Redis and PostgreSQL, a cluster that keeps count of everything: workers are killed with SIGKILL
between any two steps, each task comes four times from two beats that both send, answers are cut off after the act.

FIRE_ROUNDS=30 and FIRE_SAVEPOINTS=500 for `make chaos`; FIRE_SEED plays a run again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.monitoring.fake_job_manager import serving
from tests.monitoring.fire.conftest import HastyMachine
from tests.monitoring.fire.engine import PlayedCluster
from tests.monitoring.fire.rounds import Killer, Round
from tests.monitoring.fire.world import NAME
from tests.waiting import eventually

ROUNDS = int(os.environ.get("FIRE_ROUNDS", "3"))
SEED = int(os.environ.get("FIRE_SEED", "0")) or random.randrange(1, 10**6)
AT_ONCE = 6

pytestmark = [pytest.mark.stack, pytest.mark.timeout(200 + 40 * ROUNDS)]


@pytest.fixture
def left() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_dead_job_comes_back_exactly_once_whoever_is_killed(machine: HastyMachine, left: ExitStack) -> None:
    print(f"FIRE_SEED={SEED}")
    killer = Killer((machine.worker(1), machine.worker(2)))
    for first in range(0, ROUNDS, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, ROUNDS))
        rounds = [Round(number, left.enter_context(serving(PlayedCluster())), SEED + number) for number in numbers]
        wave = f"wave-{first}-"
        machine.watch({f"{wave}{each.number}": each.engine for each in rounds})
        eventually("all are polled", lambda: machine.jobs_are_known(wave) == len(rounds), 90)  # noqa: B023
        machine.automate(wave)
        for each in rounds:
            print(each)
            each.begin(killer)
        eventually("every job is back", lambda: all(_is_back(machine, wave, each) for each in rounds), 180)  # noqa: B023
        for each in rounds:
            each.judge()
    print(f"{ROUNDS} rounds, {killer.kills} workers killed")
    assert killer.kills >= ROUNDS / 2
    _judge_rows(machine)


def _is_back(machine: HastyMachine, wave: str, each: Round) -> bool:
    """It lives, the rows say so, nothing is under way any more, and what was to go wrong has."""
    run = each.engine.living(NAME)
    if run is None or (not each.killed.is_set() and not each.taken_back):
        return False
    found = machine.rows(_STANDING, f"{wave}{each.number}")
    return found == [{"engine_job_id": run.id, "state": "RUNNING", "open": 0}]


def _judge_rows(machine: HastyMachine) -> None:
    attempts = machine.rows("SELECT job_id, epoch, state FROM monitoring_restartattempt ORDER BY job_id, id")
    epochs: dict[int, list[int]] = {}
    for row in attempts:
        epochs.setdefault(row["job_id"], []).append(row["epoch"])
    assert all(found == list(range(1, len(found) + 1)) for found in epochs.values()), epochs
    decisions = machine.value("SELECT count(*) FROM monitoring_restartdecision WHERE verdict = 'restart'")
    assert decisions == len(attempts)


_STANDING = """
SELECT r.engine_job_id, r.state, (SELECT count(*) FROM monitoring_restartattempt a
    WHERE a.job_id = j.id AND a.state NOT IN ('succeeded', 'failed', 'canceled')) AS open
FROM monitoring_job j JOIN monitoring_cluster c ON c.id = j.cluster_id JOIN monitoring_run r ON r.id = j.current_run_id
WHERE c.name = %s
"""
