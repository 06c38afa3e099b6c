"""Real workers with real Redis and PostgreSQL restart dead jobs, and are killed between any two of their steps.

Each task is sent four times, by two beats. Answers of the cluster, which counts everything, are lost after the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.monitoring.fake_job_manager import serving
from tests.monitoring.fire.conftest import HastyMachine
from tests.monitoring.fire.engine import PlayedCluster
from tests.monitoring.fire.rounds import Killer, Round
from tests.monitoring.fire.world import NAME
from tests.profile import PROFILE, SEED
from tests.waiting import eventually

ROUNDS = PROFILE.fire_rounds
AT_ONCE = 6
SAVEPOINTS = PROFILE.fire_savepoints
CLUSTERS = 10
SAVEPOINTS_AT_ONCE = 4
JITTER_S = 10

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.timeout(900 + 40 * ROUNDS + 2 * SAVEPOINTS)]


@pytest.fixture
def left() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_dead_job_is_restarted_exactly_once_for_every_killed_process(machine: HastyMachine, left: ExitStack) -> None:
    killer = Killer((machine.worker(1), machine.worker(2)))
    to_strike = 0
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
        to_strike += sum(not each.taken_back for each in rounds)  # other jobs may return before their kill
    print(f"{ROUNDS} rounds, {killer.kills} workers killed")
    eventually("a kill for each round that was to have one", lambda: killer.kills >= to_strike)
    _judge_rows(machine)


def _is_back(machine: HastyMachine, wave: str, each: Round) -> bool:
    """Return whether the job runs in the engine and in the rows, no attempt is open, and the kill has occurred."""
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


def test_savepoints_of_the_same_minute_are_taken_once_each_within_the_limits(
    machine: HastyMachine, left: ExitStack
) -> None:
    engines = {f"due-{n}": left.enter_context(serving(_quick_cluster())) for n in range(CLUSTERS)}
    for number in range(SAVEPOINTS):
        engines[f"due-{number % CLUSTERS}"].begin(f"job-{number}")
    machine.watch(engines, savepoints_at_once=SAVEPOINTS_AT_ONCE, savepoint_jitter_s=JITTER_S)
    eventually("all are polled", lambda: machine.jobs_are_known("due-") == SAVEPOINTS, 120 + SAVEPOINTS / 2)
    hour, minute = machine.rows(_IN_TWO_HOURS)[0].values()
    machine.rows(_SCHEDULE, f"{minute} {hour} * * *")
    eventually("each has its time", lambda: machine.value(_TIMES) == SAVEPOINTS, 60)
    spread = [float(row["after"]) for row in machine.rows(_SPREAD)]
    assert all(0 <= after < JITTER_S for after in spread)
    assert max(spread) - min(spread) > JITTER_S / 2, "they are spread over it"

    machine.rows(_DUE_NOW)
    killer = Killer((machine.worker(1), machine.worker(2)))
    eventually("some are taken", lambda: machine.value(_TAKEN) >= SAVEPOINTS / 5, 120)
    killer.strike((0,))
    eventually("half are taken", lambda: machine.value(_TAKEN) >= SAVEPOINTS / 2, 300)
    killer.strike((0, 1))
    eventually("all are taken", lambda: machine.value(_TAKEN) >= SAVEPOINTS, 600)

    for engine in engines.values():
        assert 1 <= engine.most_savepoints <= SAVEPOINTS_AT_ONCE, "at once, by what the engine saw"
        assert sorted(each.job_id for each in engine.savepoints.values()) == sorted(engine.jobs), (
            "none lost, none twice"
        )
    rows = machine.rows(_SAVEPOINTS)
    known = {trigger_id for engine in engines.values() for trigger_id in engine.savepoints}
    assert {row["trigger_id"] for row in rows} == known
    assert len(rows) == SAVEPOINTS
    assert {row["state"] for row in rows} == {"completed"}
    most = max(engine.most_savepoints for engine in engines.values())
    print(f"{SAVEPOINTS} savepoints over {CLUSTERS} clusters, at most {most} at once on one, {killer.kills} kills")


def _quick_cluster() -> PlayedCluster:
    return PlayedCluster(savepoint_takes_s=0.5, checkpointing=False)


_IN_TWO_HOURS = """
SELECT extract(hour FROM at)::int AS hour, extract(minute FROM at)::int AS minute
FROM (SELECT now() AT TIME ZONE 'UTC' + interval '2 hours' AS at) AS soon
"""
_OURS = "cluster_id IN (SELECT id FROM monitoring_cluster WHERE name LIKE 'due-%%')"
_SCHEDULE = f"UPDATE monitoring_job SET savepoint_cron = %s, next_savepoint_at = NULL WHERE {_OURS}"
_PLAIN = _OURS.replace("%%", "%")
_TIMES = f"SELECT count(*) FROM monitoring_job WHERE next_savepoint_at IS NOT NULL AND {_PLAIN}"
_SPREAD = f"""
SELECT extract(epoch FROM next_savepoint_at - date_trunc('minute', next_savepoint_at)) AS after
FROM monitoring_job WHERE {_PLAIN}
"""
# Move the due times to the current minute, but keep their jitter.
_DUE_NOW = f"""
UPDATE monitoring_job SET next_savepoint_at = now() + (next_savepoint_at - date_trunc('minute', next_savepoint_at))
WHERE {_PLAIN}
"""
_TAKEN = "SELECT count(*) FROM monitoring_savepoint WHERE origin = 'scheduled' AND state = 'completed'"
_SAVEPOINTS = "SELECT trigger_id, state FROM monitoring_savepoint WHERE origin = 'scheduled'"
