"""Checkpoints of a dead run that were never polled are found in the storage, or guessed if it cannot be read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from monitoring.models import Job, RestoreFrom, Run
from monitoring.recovery.candidates import State
from monitoring.recovery.manual import restart_from
from monitoring.recovery.states import restore_candidates
from monitoring.recovery.unseen import MOST_GUESSED, following, found_checkpoints
from monitoring.savepoints.storage_threads import TimeLimit
from tests.monitoring.savepoints import snapshots

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SEEN = State("file:/chk/abc/chk-7", NOON, False, 1, 7)


class TestFollowing:
    def test_as_many_as_it_had_the_time_for_the_last_first(self):
        found = following(SEEN, NOON + timedelta(seconds=25), timedelta(seconds=10))
        assert [(state.path, state.checkpoint_id) for state in found] == [
            ("file:/chk/abc/chk-10", 10),
            ("file:/chk/abc/chk-9", 9),
            ("file:/chk/abc/chk-8", 8),
        ]
        assert found[-1].taken_at == NOON + timedelta(seconds=10)

    def test_there_is_a_limit(self):
        assert len(following(SEEN, NOON + timedelta(hours=1), timedelta(seconds=1))) == MOST_GUESSED

    def test_a_path_without_a_number_has_no_successor(self):
        own = replace(SEEN, path="s3://b/own-layout")
        assert not following(own, NOON + timedelta(hours=1), timedelta(seconds=1))


@pytest.fixture
def root(tmp_path, settings) -> Path:
    settings.STATE_ROOTS = (str(tmp_path),)
    return tmp_path


@pytest.fixture
def job(rows) -> Job:
    return rows.job()


@pytest.fixture
def lost(rows, job, root) -> Run:
    """Return a lost run with checkpoints every 9 s. The 8th is the last polled one, 20 s before the loss."""
    run = rows.run(job, "LOST", ended_at=rows.ago(1), checkpoint_config={"interval": 9000})
    rows.checkpoint(run, 8, external_path=f"file:{root}/{run.engine_job_id}/chk-8", triggered_at=rows.ago(21))
    return run


def lay_down(root: Path, run: Run, *numbers: int) -> list[str]:
    """Write complete Flink checkpoints with these numbers. Return their paths as the engine writes them."""
    places = [root / run.engine_job_id / f"chk-{number}" for number in numbers]
    return [f"file:{snapshots.lay_down(snapshots.names()[0], place)}" for place in places]


def offered(job: Job) -> list[str]:
    return [state.path for state in restore_candidates(job)]


def test_existing_checkpoints_are_offered_and_none_is_guessed(job, lost, root):
    [eight, nine] = lay_down(root, lost, 8, 9)
    assert offered(job) == [nine, eight]


def test_existing_checkpoints_beyond_the_guessed_range_are_offered(rows, job, lost, root):
    Run.objects.filter(pk=lost.pk).update(ended_at=rows.ago(-3600))
    [_, far, further] = lay_down(root, lost, 8, 40, 41)
    assert offered(job)[:2] == [further, far]


def test_a_checkpoint_without_metadata_was_never_completed(job, lost, root):
    lay_down(root, lost, 8, 9)
    (root / lost.engine_job_id / "chk-9" / "_metadata").unlink()
    assert [Path(path).name for path in offered(job)] == ["chk-8"]


def test_other_names_in_the_directory_are_no_checkpoints(job, lost, root):
    lay_down(root, lost, 8)
    for name in ("shared", "taskowned", "chk-9.tmp", "chk-"):
        (root / lost.engine_job_id / name).mkdir()
        (root / lost.engine_job_id / name / "_metadata").touch()
    assert [Path(path).name for path in offered(job)] == ["chk-8"]


def test_the_estimated_time_is_between_the_interval_and_the_end_of_the_run(job, lost, root):
    lay_down(root, lost, 9, 10, 11)
    seen_at = lost.checkpoints.get().triggered_at
    [eleven, ten, nine, _] = restore_candidates(job)
    assert (nine.taken_at, ten.taken_at) == (seen_at + timedelta(seconds=9), seen_at + timedelta(seconds=18))
    assert eleven.taken_at == lost.ended_at


@pytest.mark.parametrize("reached", ["no root", "another root", "an empty root"])
def test_without_access_the_next_checkpoint_is_guessed_from_the_last_known_one(job, lost, tmp_path, settings, reached):
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    settings.STATE_ROOTS = {"no root": (), "another root": (str(empty),), "an empty root": (str(tmp_path),)}[reached]
    if reached == "an empty root":
        empty.rmdir()
    assert [Path(path).name for path in offered(job)] == ["chk-8", "chk-9", "chk-10", "chk-11"]


def test_the_directory_of_an_unseen_run_is_next_to_that_of_the_previous_run(rows, job, lost, root):
    """The run was lost before any of its checkpoints was polled, so its directory follows from the previous run's."""
    following = rows.run(job, "LOST", number=lost.number + 1, started_at=rows.ago(1), ended_at=rows.ago(0))
    [eight, unseen] = [*lay_down(root, lost, 8), *lay_down(root, following, 10)]
    assert offered(job) == [unseen, eight]


def test_a_failed_run_is_searched_too(job, lost, root):
    """A failed run's last checkpoints are read from the engine, but the restart does not wait for ever."""
    Run.objects.filter(pk=lost.pk).update(state="FAILED")
    [eight, nine] = lay_down(root, lost, 8, 9)
    assert offered(job) == [nine, eight]


@pytest.mark.parametrize(
    "change",
    [
        {"state": "RUNNING", "ended_at": None},
        {"state": "CANCELED"},
        {"checkpoint_config": {"externalization": {"enabled": False}}},
    ],
)
def test_a_run_that_lives_was_stopped_or_retains_nothing_is_not_searched(job, lost, root, change):
    lay_down(root, lost, 8, 9)
    Run.objects.filter(pk=lost.pk).update(**change)
    assert not any(path.endswith("chk-9") for path in offered(job))


def test_a_job_that_restores_only_savepoints_has_no_unseen_checkpoints(job, lost, root):
    lay_down(root, lost, 8, 9)
    job.restore_from = RestoreFrom.SAVEPOINT
    assert offered(job) == []


@pytest.mark.parametrize("reached", [True, False])
def test_checkpoints_after_a_manually_restored_one_are_not_searched(rows, job, lost, root, settings, reached):
    """A person restored the 7th checkpoint, and that run died before its first checkpoint."""
    [seven, *_] = lay_down(root, lost, 7, 8, 9)
    rows.checkpoint(lost, 7, external_path=seven, triggered_at=rows.ago(30))
    rows.run(job, "FAILED", number=lost.number + 1, ended_at=rows.ago(0), restored_path=seven)
    if not reached:
        settings.STATE_ROOTS = ()
    assert offered(job) == [seven]


def test_a_person_may_choose_a_found_checkpoint_even_if_only_savepoints_are_restored(job, lost, root):
    [nine] = lay_down(root, lost, 9)
    job.restore_from = RestoreFrom.SAVEPOINT
    assert [state.path for state in found_checkpoints(job, TimeLimit(60))] == [nine]


def test_a_person_is_never_shown_a_guess(job, lost):
    assert following(SEEN, NOON + timedelta(seconds=25), timedelta(seconds=10))
    assert len(offered(job)) > 1  # the automation guesses paths, which do not exist
    assert found_checkpoints(job, TimeLimit(60)) == []


def test_the_restart_has_the_time_of_a_chosen_checkpoint(job, lost, root, now):
    [nine] = lay_down(root, lost, 9)
    job.launch = {"kind": "waymark", "jar_id": "program.py"}
    attempt = restart_from(job, nine, "ada", now)
    assert (attempt.restore_path, attempt.restore_is_savepoint) == (nine, False)
    assert attempt.restore_state_at == lost.checkpoints.get().triggered_at + timedelta(seconds=9)
