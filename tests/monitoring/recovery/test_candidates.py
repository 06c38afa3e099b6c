from datetime import UTC, datetime, timedelta

import pytest

from monitoring.models import RestoreFrom, RunState, Savepoint
from monitoring.recovery.candidates import RestoredRun, State, candidates
from monitoring.recovery.states import restore_candidates

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def state(path, minute, run=1, is_savepoint=False, row=None):
    return State(path, NOON + timedelta(minutes=minute), is_savepoint, run, savepoint_row=row)


ONE_RUN = (RestoredRun(1, ""),)


def paths(states, runs=ONE_RUN, restore_from=RestoreFrom.NEWEST):
    return [each.path for each in candidates(states, runs, restore_from)]


def test_the_newest_state_of_any_kind_is_first():
    states = [state("chk-1", 1), state("sp", 2, is_savepoint=True), state("chk-2", 3)]
    assert paths(states) == ["chk-2", "sp", "chk-1"]


def test_only_savepoints_are_candidates_if_the_job_is_configured_so():
    states = [state("chk-1", 1), state("sp", 2, is_savepoint=True), state("chk-2", 3)]
    assert paths(states, restore_from=RestoreFrom.SAVEPOINT) == ["sp"]


def test_a_place_known_twice_is_one_candidate_and_the_savepoints_row():
    twice = [state("file:///sp", 2, is_savepoint=True), state("/sp", 2, is_savepoint=True, row=7)]
    (only,) = candidates(twice, [RestoredRun(1, "")], RestoreFrom.NEWEST)
    assert only.savepoint_row == 7


def test_the_states_of_earlier_runs_count():
    runs = [RestoredRun(1, ""), RestoredRun(2, "chk-1")]
    assert paths([state("chk-1", 1), state("chk-7", 9, run=2)], runs) == ["chk-7", "chk-1"]


def test_snapshots_after_a_manually_restored_one_are_no_candidates():
    """Run 1 has snapshots at 1 and 5. A person restored 1, and run 2 died before its first checkpoint."""
    runs = [RestoredRun(1, ""), RestoredRun(2, "sp-1")]
    assert paths([state("sp-1", 1, is_savepoint=True), state("chk-5", 5)], runs) == ["sp-1"]


def test_two_manual_restores_exclude_the_candidates_of_both():
    runs = [RestoredRun(1, ""), RestoredRun(2, "a"), RestoredRun(3, "b")]
    states = [state("a", 1), state("x", 2), state("b", 4, run=2), state("y", 6, run=2)]
    assert paths(states, runs) == ["b", "a"]


@pytest.fixture
def job(rows):
    return rows.job()


def test_discarded_failed_and_nameless_checkpoints_are_no_candidates(rows, job):
    run = rows.run(job)
    rows.checkpoint(run, discarded=True)
    good = rows.checkpoint(run)
    rows.checkpoint(run, external_path="")
    rows.checkpoint(run, external_path="<checkpoint-not-externally-addressable>")
    rows.checkpoint(run, status="IN_PROGRESS")
    rows.failed(run, 99, rows.now)
    assert [each.path for each in restore_candidates(job)] == [good.external_path]


def test_states_older_than_a_discarded_checkpoint_of_the_run_are_excluded(rows, job):
    """The job manager was replaced, so that no poll saw the deletion."""
    earlier = rows.checkpoint(rows.run(job, RunState.FAILED), triggered_at=rows.ago(60))
    run = rows.run(job)
    savepoint = rows.checkpoint(run, triggered_at=rows.ago(50), is_savepoint=True)
    rows.checkpoint(run, triggered_at=rows.ago(40))
    rows.checkpoint(run, triggered_at=rows.ago(30), discarded=True)
    left = [rows.checkpoint(run, triggered_at=rows.ago(seconds)) for seconds in (20, 15)]
    # A disposed savepoint proves nothing about other snapshots.
    rows.checkpoint(run, triggered_at=rows.ago(10), is_savepoint=True, discarded=True)
    newest_first = [*reversed(left), savepoint, earlier]
    assert [each.path for each in restore_candidates(job)] == [each.external_path for each in newest_first]


@pytest.mark.parametrize(
    ("externalization", "state", "offered"),
    [
        ({"enabled": True, "delete_on_cancellation": False}, RunState.CANCELED, True),
        ({"enabled": True, "delete_on_cancellation": True}, RunState.CANCELED, False),
        ({"enabled": True, "delete_on_cancellation": True}, RunState.FAILED, True),
        ({"enabled": False, "delete_on_cancellation": False}, RunState.FAILED, False),
        ({"enabled": True, "delete_on_cancellation": False}, RunState.FINISHED, False),
        (None, RunState.FINISHED, False),
        ({"enabled": True, "delete_on_cancellation": False}, RunState.RUNNING, True),
        ({"enabled": True, "delete_on_cancellation": True}, RunState.RUNNING, False),
        (None, RunState.FAILED, True),
    ],
)
def test_checkpoints_that_end_with_their_run_are_no_candidates(rows, job, externalization, state, offered):
    config = {"externalization": externalization} if externalization else {}
    rows.checkpoint(rows.run(job, state, checkpoint_config=config))
    assert bool(restore_candidates(job)) is offered


def test_a_savepoint_is_a_candidate_without_externalized_checkpoints(rows, job):
    run = rows.run(job, RunState.FAILED, checkpoint_config={"externalization": {"enabled": False}})
    rows.checkpoint(run, is_savepoint=True)
    assert len(restore_candidates(job)) == 1


def test_savepoints_are_candidates_before_and_after_they_are_seen_in_the_history(rows, job):
    run = rows.run(job)
    Savepoint.objects.create(
        job=job, run=run, origin="manual", state="completed", path="file:/sp/1", requested_at=rows.ago(10)
    )
    Savepoint.objects.create(job=job, run=run, origin="manual", state="failed", path="", requested_at=rows.ago(9))
    assert [each.path for each in restore_candidates(job)] == ["file:/sp/1"]


def test_the_states_of_another_job_are_not_offered(rows, job):
    rows.checkpoint(rows.run(rows.job()))
    rows.run(job)
    assert restore_candidates(job) == []
