"""Only one worker handles a savepoint at a time. A worker that lost its claim writes nothing."""

from datetime import timedelta

import pytest

from monitoring.models import Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.work import WorkReason
from monitoring.savepoints import cycle
from monitoring.savepoints.claims import CLAIM, claim, update
from monitoring.savepoints.request import request_savepoint
from tests.monitoring.reported import NOTHING, savepoints


@pytest.fixture
def savepoint(rows, job_manager, now):
    job = rows.job(rows.cluster(rest_url=job_manager.url), name="flights")
    job_manager.add(rows.run(job).engine_job_id, "flights")
    return request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)


def read(savepoint):
    return Savepoint.objects.get(pk=savepoint.pk)


def test_the_first_of_two_workers_that_read_a_row_claims_it(savepoint, now):
    first, second = read(savepoint), read(savepoint)
    assert claim(first, now, posted_at=now) == 1
    assert claim(second, now + timedelta(seconds=1), posted_at=None) == 0
    assert (read(savepoint).next_check_at, read(savepoint).posted_at) == (now + CLAIM, now)


def test_a_row_whose_state_moved_on_is_nobodys_to_claim(savepoint, now):
    seen = read(savepoint)
    Savepoint.objects.update(state=SavepointState.FAILED)
    assert claim(seen, now) == 0


def test_a_claim_changes_no_other_row(savepoint, rows, now):
    other = rows.job(savepoint.job.cluster)
    rows.run(other)
    another = request_savepoint(other, SavepointOrigin.MANUAL, "ada", now)
    assert claim(read(savepoint), now) == 1
    assert read(another).next_check_at == now


def test_a_worker_whose_claim_ended_writes_nothing(savepoint, now):
    slow = read(savepoint)
    claim(slow, now)
    claim(read(savepoint), now + CLAIM)
    assert update(slow, WorkReason.SAVEPOINTS_FAILED, state=SavepointState.FAILED) is WorkReason.OVERTAKEN
    assert read(savepoint).state == SavepointState.REQUESTED


def test_a_worker_with_the_claim_writes_once(savepoint, now):
    ours = read(savepoint)
    claim(ours, now)
    assert update(ours, WorkReason.SAVEPOINTS_FAILED, state=SavepointState.FAILED) is WorkReason.SAVEPOINTS_FAILED
    assert update(ours, WorkReason.SAVEPOINTS_COMPLETED, state=SavepointState.COMPLETED) is WorkReason.OVERTAKEN
    assert read(savepoint).state == SavepointState.FAILED


def test_a_cycle_that_read_rows_before_another_claimed_them_sends_nothing(savepoint, job_manager, now, monkeypatch):
    due = cycle._due(now)
    assert cycle.advance(now) == savepoints(sent=1)
    monkeypatch.setattr(cycle, "_due", lambda _now: due)
    assert cycle.advance(now) == NOTHING
    assert job_manager.calls == ["trigger"]
