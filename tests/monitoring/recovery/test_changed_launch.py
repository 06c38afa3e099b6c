"""Upgrade, rescale, revert and clone: starts with another launch record, which are as exact as any restart."""

from datetime import timedelta

import pytest

from monitoring.launches import Launched, remember
from monitoring.models import Incident, Job, LaunchOrigin, LaunchVersion, RestartAttempt, Savepoint
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.cycle import advance
from monitoring.recovery.launching import BadLaunch
from monitoring.recovery.manual import RestartRefused, change_and_restart, clone
from monitoring.savepoints import cycle as savepoints
from tests.monitoring.recovery.conftest import LAUNCH

UPGRADED = {**LAUNCH, "jar_id": "program-2.py", "parallelism": 4}


def test_an_upgrade_continues_from_the_savepoint_that_stops_the_job(live, savepoint, job_manager, settle, now):
    old = live.current_run.engine_job_id
    attempt = settle(change_and_restart(live, UPGRADED, "upgrade it", None, "ada", now), now)

    assert attempt.state == "succeeded"
    assert job_manager.jobs[old].state == "FINISHED"
    new = job_manager.jobs[attempt.engine_job_id]
    assert new.savepoint_path == attempt.stop_savepoint.path
    assert attempt.savepoint == attempt.stop_savepoint
    assert job_manager.ran[-1]["parallelism"] == 4
    assert job_manager.most_alive == 1
    live.refresh_from_db()
    assert live.launch == UPGRADED
    assert attempt.new_run.launch_version.spec == UPGRADED


def test_the_old_record_remains_in_force_until_the_new_run_exists(live, job_manager, settle, now):
    job_manager.answers["run"] = (400, "The state of operator 7 does not fit the program.")
    attempt = settle(change_and_restart(live, UPGRADED, "upgrade it", None, "ada", now), now)
    assert attempt.state == "failed"
    assert "does not fit" in attempt.error
    live.refresh_from_db()
    assert live.launch == LAUNCH
    assert attempt.stop_savepoint.path  # the snapshot for the old version


def test_the_job_continues_unchanged_if_the_savepoint_on_stop_fails(live, job_manager, settle, now, monkeypatch):
    job_manager.answers["stop"] = (500, "Disk is full")
    attempt = change_and_restart(live, UPGRADED, "upgrade it", None, "ada", now)
    for second in range(0, 20, 2):
        moment = now + timedelta(seconds=second)
        savepoints.advance(moment)
        advance(moment)
    Savepoint.objects.filter(stops_job=True).update(state="failed", failure="Disk is full")
    attempt = settle(attempt, now + timedelta(seconds=30))
    assert attempt.state == "failed"
    assert attempt.error_value == Why.SAVEPOINT_FAILED(failure="Disk is full")
    assert [job.state for job in job_manager.jobs.values()] == ["RUNNING"]


def test_a_job_that_dies_before_it_could_be_stopped_is_not_started_from_anything_older(live, job_manager, settle, now):
    attempt = change_and_restart(live, UPGRADED, "upgrade it", None, "ada", now)
    job_manager.jobs[live.current_run.engine_job_id].state = "FAILED"
    attempt = settle(attempt, now)
    assert attempt.state == "failed"
    assert "before it could be stopped with a savepoint. Nothing was started" in attempt.error
    assert len(job_manager.jobs) == 1


def test_a_dead_job_is_started_with_the_other_record_from_a_chosen_savepoint(job, savepoint, job_manager, settle, now):
    attempt = settle(change_and_restart(job, UPGRADED, "upgrade it", savepoint, "ada", now), now)
    assert attempt.state == "succeeded"
    assert job_manager.jobs[attempt.engine_job_id].savepoint_path == "file:/sp/1"


def test_a_dead_job_has_nothing_to_be_stopped_with(job, now):
    with pytest.raises(RestartRefused) as refused:
        change_and_restart(job, UPGRADED, "upgrade it", None, "ada", now)
    assert refused.value.reason.args["allowed"] == Why.CHOOSE_SAVEPOINT()
    assert not RestartAttempt.objects.exists()


def test_a_record_that_could_never_start_is_refused_before_anything_stops(live, now):
    with pytest.raises(BadLaunch, match=r"launch\.parallelism is 0"):
        change_and_restart(live, {**LAUNCH, "parallelism": 0}, "rescale it", None, "ada", now)
    assert not RestartAttempt.objects.exists()


def test_a_clone_runs_next_to_the_job_from_its_savepoint(live, savepoint, job_manager, poll, settle, now):
    attempt = clone(live, "flights-copy", LAUNCH, savepoint, "ada", now)
    attempt = settle(attempt, now)
    assert attempt.state == "succeeded"
    copy = Job.objects.get(name="flights-copy")
    assert copy.current_run.engine_job_id == attempt.engine_job_id
    assert job_manager.jobs[attempt.engine_job_id].name == "flights-copy"
    assert sorted(job.state for job in job_manager.jobs.values()) == ["RUNNING", "RUNNING"]
    assert not copy.auto_restart


@pytest.mark.parametrize("name", ["", "  ", "x" * 501, "flights", "a\nb"])
def test_a_clone_needs_another_name(live, savepoint, now, name):
    with pytest.raises(RestartRefused, match=r"^name is"):
        clone(live, name, LAUNCH, savepoint, "ada", now)
    assert Job.objects.count() == 1


class TestVersions:
    def test_each_record_that_differs_is_a_version(self, rows, job, now):
        for spec in (LAUNCH, LAUNCH, UPGRADED, LAUNCH):
            run = rows.run(job)
            remember([Launched(run, spec)], LaunchOrigin.FOUND, "", now)
        assert [version.spec["jar_id"] for version in job.launch_versions.all()] == [
            "program.py",
            "program-2.py",
            "program.py",
        ]
        assert [run.launch_version.number for run in job.runs.order_by("number")[1:]] == [1, 1, 2, 3]

    def test_many_runs_need_as_many_queries_as_one(self, rows, now, django_assert_num_queries):
        runs = [rows.run(rows.job()) for _ in range(30)]
        with django_assert_num_queries(4):
            remember([Launched(run, LAUNCH) for run in runs], LaunchOrigin.FOUND, "", now)
        assert LaunchVersion.objects.count() == 30


class TestTheWayBack:
    """A change that does not start is undone, from the same snapshot."""

    @pytest.fixture
    def upgrade(self, live, now):
        return change_and_restart(live, UPGRADED, "upgrade it", None, "ada", now, goes_back=True)

    @pytest.fixture
    def back(self, live, upgrade, settle, now):
        """Return a function that lets the upgrade fail, and returns the restart that follows."""

        def settled() -> RestartAttempt:
            assert settle(upgrade, now).state == "failed"
            return settle(upgrade.way_back, now + timedelta(minutes=1))

        return settled

    def test_a_start_that_the_engine_refuses(self, live, job_manager, upgrade, back, now):
        job_manager.answers_once["run"] = (400, "The state of operator 7 does not fit the program.")
        attempt = back()
        self.assert_as_it_was(live, job_manager, upgrade, attempt)

    def test_an_accepted_start_that_fails(self, live, job_manager, upgrade, back, now):
        job_manager.starts_as = ["FAILED", "RUNNING"]
        job_manager.exception = "java.lang.IllegalStateException: There is no operator for the state 7"
        attempt = back()
        assert "There is no operator for the state 7" in upgrade.error
        self.assert_as_it_was(live, job_manager, upgrade, attempt)

    def assert_as_it_was(self, live, job_manager, upgrade, attempt):
        assert (attempt.state, attempt.launch, attempt.back_from) == ("succeeded", None, upgrade)
        assert attempt.restore_path == upgrade.stop_savepoint.path
        last = job_manager.ran[-1]
        assert (last["savepointPath"], last["parallelism"]) == (attempt.restore_path, LAUNCH["parallelism"])
        assert job_manager.jobs[attempt.engine_job_id].state == "RUNNING"
        assert job_manager.most_alive == 1
        live.refresh_from_db()
        assert live.launch == LAUNCH

    def test_a_failed_return_to_the_old_version_is_reported(self, live, job_manager, upgrade, back, now):
        job_manager.starts_as = "FAILED"
        assert back().state == "failed"
        assert RestartAttempt.objects.count() == 2  # no further restart follows
        assert Incident.objects.get().sentence.startswith("Restart 2 of flights failed: The new run is FAILED")

    def test_nothing_is_undone_while_the_outcome_of_the_start_is_unknown(self, live, job_manager, upgrade, settle, now):
        job_manager.loses_request_of = {"run"}
        for second in range(0, 700, 10):
            moment = now + timedelta(seconds=second)
            savepoints.advance(moment)
            advance(moment)
        upgrade.refresh_from_db()
        assert upgrade.state == "failed"
        assert RestartAttempt.objects.get() == upgrade

    def test_a_job_that_was_not_stopped_needs_no_way_back(self, live, job_manager, upgrade, settle, now):
        job_manager.jars.clear()
        settle(upgrade, now)
        assert RestartAttempt.objects.get() == upgrade
        assert job_manager.count("stop") == 0


def test_the_job_runs_only_when_every_operator_does(job, job_manager, go_on, now):
    job_manager.vertices = [("count", "RUNNING"), ("sink", "INITIALIZING")]
    with pytest.raises(AssertionError, match="still waiting"):
        go_on(job, now, limit=5)
    assert RestartAttempt.objects.get().steps.last().text == "The new run is RUNNING, but sink is not yet."
    job_manager.vertices = [("count", "RUNNING"), ("sink", "FINISHED")]
    assert go_on(job, now + timedelta(seconds=20)).state == "succeeded"


def test_the_next_state_is_used_if_the_engine_finds_one_missing_at_the_start(rows, job, job_manager, go_on, now):
    rows.checkpoint(job.current_run, 9, external_path="file:/chk/9", triggered_at=rows.ago(10))
    job_manager.can_validate = False
    job_manager.starts_as = ["FAILED", "RUNNING"]
    job_manager.exception = (
        "java.io.FileNotFoundException: Cannot find checkpoint or savepoint file/directory 'file:/chk/9'"
    )
    attempt = go_on(job, now)
    assert attempt.state == "succeeded"
    assert [body["savepointPath"] for body in job_manager.ran] == ["file:/chk/9", "file:/chk/7"]
    assert len({body["jobId"] for body in job_manager.ran}) == 2
    assert attempt.rejected[0]["path"] == "file:/chk/9"


def test_a_job_whose_stop_exceeds_the_limit_of_a_start_is_still_restarted(live, job_manager, poll, now):
    """If the attempt were given up meanwhile, the job would stop without a restart."""
    live.current_run.checkpoint_config = {"timeout": 3_600_000}
    live.current_run.save()
    job_manager.completes_savepoints = False
    attempt = change_and_restart(live, UPGRADED, "upgrade it", None, "ada", now)
    for minute in range(30):
        moment = now + timedelta(minutes=minute)
        poll(live, moment)
        savepoints.advance(moment)
        advance(moment)
        job_manager.completes_savepoints = minute >= 20
    attempt.refresh_from_db()
    assert attempt.state == "succeeded", attempt.error
    assert job_manager.most_alive == 1
