"""A program that a cluster lost is uploaded again. A restart without a program does not stop the job."""

from datetime import timedelta

import pytest

from monitoring.models import Cluster, Job, PlacedProgram, Program, ProgramPart, RestartAttempt
from monitoring.programs import Damaged, content_of, copy_missing_programs, copy_of, discard_unused, keep
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.manual import change_and_restart
from tests.monitoring.fake_job_manager import FakeJobManager
from tests.monitoring.recovery.conftest import LAUNCH

CONTENT = bytes(range(256)) * 10_000  # in three parts


@pytest.fixture
def kept(job: Job, now) -> Program:
    return keep(job.cluster, "program.py", "program.py", CONTENT, "ada", now)


def steps(attempt: RestartAttempt) -> list[tuple[str, str]]:
    return [(step.name, step.state) for step in attempt.steps.all()]


def forget_at(job_manager: FakeJobManager, call: str, times: int) -> None:
    """Let the cluster lose all programs at each of the first `times` calls of this name."""
    act, left = getattr(job_manager, f"_{call}"), iter(range(times))

    def forgetful(*given: object) -> object:
        if next(left, None) is not None:
            job_manager.jars.clear()
        return act(*given)

    setattr(job_manager, f"_{call}", forgetful)


class TestOneThatTheClusterLost:
    def test_a_lost_program_is_uploaded_again_and_run_by_its_new_id(self, job, kept, job_manager, go_on, now):
        job_manager.jars.clear()
        attempt = go_on(job, now)

        assert attempt.state == "succeeded"
        ((jar_id, content),) = job_manager.jars.items()
        assert content == CONTENT
        job.refresh_from_db()
        assert job.launch == LAUNCH | {"jar_id": jar_id}
        assert copy_of(job.cluster, jar_id) == kept
        assert steps(attempt)[1:4] == [
            ("Check the program", "done"),
            ("Upload the program", "done"),
            ("Check the state", "done"),
        ]

    def test_without_a_copy_nothing_is_stopped(self, live, job_manager, settle, now):
        job_manager.jars.clear()
        attempt = settle(change_and_restart(live, LAUNCH, Why.START_ANEW(), None, "ada", now), now)
        assert attempt.error == (
            "program.py is not on the cluster, and Waymark keeps no copy of it. Upload the program again."
        )
        assert [each.state for each in job_manager.jobs.values()] == ["RUNNING"]
        assert job_manager.count("stop") == 0

    def test_a_cluster_that_accepts_no_programs_is_detected_before_anything_stops(self, live, job_manager, settle, now):
        job_manager.answers["jars"] = (404, "Not found: /jars")
        attempt = settle(change_and_restart(live, LAUNCH, Why.START_ANEW(), None, "ada", now), now)
        assert "does not accept programs (Flink: web.submit.enable)" in attempt.error
        assert job_manager.count("stop") == 0

    def test_lost_between_the_check_and_the_start_it_is_uploaded_then(self, job, kept, job_manager, go_on, now):
        forget_at(job_manager, "validate", times=1)
        attempt = go_on(job, now)
        assert attempt.state == "succeeded"
        assert ("Upload the program", "done") in steps(attempt)
        assert job_manager.most_alive == 1

    def test_a_restart_fails_after_the_cluster_lost_the_program_three_times(self, job, kept, job_manager, go_on, now):
        forget_at(job_manager, "validate", times=99)
        assert go_on(job, now).error == "The cluster lost the program 3 times before it could be started."

    def test_the_answer_to_the_upload_is_lost(self, job, kept, job_manager, go_on, now):
        job_manager.jars.clear()
        job_manager.loses_answer_of = {"upload"}
        with pytest.raises(AssertionError, match="still uploading"):
            go_on(job, now, limit=3)
        job_manager.loses_answer_of = set()
        assert go_on(job, now + timedelta(seconds=10)).state == "succeeded"
        assert job_manager.most_alive == 1

    def test_a_program_that_the_cluster_does_not_take_stops_nothing(self, live, kept, job_manager, settle, now):
        job_manager.jars.clear()
        job_manager.answers["upload"] = (413, "At most 10 MB.")
        attempt = settle(change_and_restart(live, LAUNCH, Why.START_ANEW(), None, "ada", now), now)
        assert attempt.error == "The cluster rejected the program: At most 10 MB."
        assert job_manager.count("stop") == 0


class TestTheCopy:
    def test_an_uploaded_program_is_stored_once(self, job, kept, now):
        assert keep(job.cluster, "again.py", "program.py", CONTENT, "bob", now) == kept
        assert (kept.uploaded_by, kept.size, kept.parts.count()) == ("ada", len(CONTENT), 3)
        assert content_of(kept) == CONTENT
        assert PlacedProgram.objects.count() == 2

    def test_a_damaged_program_is_never_uploaded(self, job, kept, job_manager, go_on, now):
        ProgramPart.objects.filter(program=kept, number=1).update(content=b"")
        with pytest.raises(Damaged):
            content_of(kept)
        job_manager.jars.clear()
        assert "is damaged. Upload the program again." in go_on(job, now).error
        assert not job_manager.jars

    def test_a_program_is_removed_once_no_record_names_it(self, job, kept, now):
        later = now + timedelta(days=2)
        assert discard_unused(later) == 0
        Job.objects.update(launch=LAUNCH | {"jar_id": "newer.py"})
        assert discard_unused(now + timedelta(hours=1)) == 0  # a new program may not be used yet
        assert discard_unused(later) == 1
        assert not ProgramPart.objects.exists()


class TestOneThatCameAnotherWay:
    @pytest.fixture(autouse=True)
    def on_our_job_manager(self, job, job_manager):
        Cluster.objects.update(engine="spark")
        job_manager.jars["program.py"] = CONTENT

    def test_a_program_is_copied_once_if_the_cluster_returns_it(self, job, job_manager, now):
        assert (copy_missing_programs(now), copy_missing_programs(now)) == (1, 0)
        assert content_of(copy_of(job.cluster, "program.py")) == CONTENT
        assert job_manager.count("content") == 1

    def test_a_cluster_that_has_lost_it_already_is_no_failure(self, job_manager, now):
        job_manager.jars.clear()
        assert copy_missing_programs(now) == 0

    def test_programs_of_flink_are_not_copied(self, job_manager, now):
        Job.objects.update(launch=LAUNCH | {"kind": "flink-jar"})
        assert copy_missing_programs(now) == 0
        assert job_manager.count("content") == 0
