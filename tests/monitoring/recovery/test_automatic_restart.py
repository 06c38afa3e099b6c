"""A dead job restarts once, from its newest snapshot, for all answers of the engine."""

from datetime import timedelta

import pytest

from monitoring.engine.answers import JobOverview
from monitoring.models import (
    AttemptState,
    AuditEntry,
    Checkpoint,
    Incident,
    Job,
    RestartAttempt,
    RestartDecision,
    RestartTrigger,
    Run,
    Savepoint,
)
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.reasons.report import CycleReport
from monitoring.recovery.attempt import TIME_LIMIT, open_attempt
from monitoring.recovery.cycle import advance
from monitoring.recovery.stages.await_running import LINK_WITHIN, AwaitRunning, Seen
from monitoring.recovery.stages.base import End, Wait, write
from monitoring.recovery.stages.start_job import MOST_LAUNCHES, SEND_AGAIN_AFTER
from tests.monitoring.savepoints.snapshots import lay_down


def steps(attempt):
    return [(step.name, step.state) for step in attempt.steps.all()]


def restarted(job_manager):
    return [job for job in job_manager.jobs.values() if job.savepoint_path is not None]


def test_a_dead_job_is_restarted_from_its_newest_state(job, job_manager, go_on, now):
    attempt = go_on(job, now)

    assert attempt.state == "succeeded"
    (life,) = restarted(job_manager)
    assert (life.id, life.name, life.savepoint_path) == (attempt.engine_job_id, "flights", "file:/chk/7")
    assert attempt.new_run.engine_job_id == life.id
    assert steps(attempt) == [
        ("Decide", "done"),
        ("Check the program", "done"),
        ("Check the state", "done"),
        ("Stop the job", "skipped"),
        ("Start the job", "done"),
        ("Wait until it runs", "done"),
    ]


def test_the_job_is_started_by_its_launch_record(job, job_manager, go_on, now):
    attempt = go_on(job, now)
    assert job_manager.ran == [
        {
            "jobId": attempt.engine_job_id,
            "entryClass": "program:main",
            "programArgsList": ["--input", "/in"],
            "parallelism": 2,
            "savepointPath": "file:/chk/7",
            "flinkConfiguration": {"execution.checkpointing.interval": "5000", "pipeline.name": "flights"},
            "automaticRestore": True,
        }
    ]


def test_one_cycle_starts_the_job(job, job_manager, now):
    report = str(advance(now))
    assert report == "Restart 1 of flights decided: flights has been FAILED since 11:59:55 UTC. Restarts: 1 waiting."
    assert job_manager.count("run") == 1


def test_the_restart_is_audited_from_decision_to_end(job, go_on, now):
    go_on(job, now)
    actions = list(AuditEntry.objects.order_by("id").values_list("actor", "action", "target"))
    assert actions == [
        ("waymark", "restart.decide", "job flights"),
        ("waymark", "restart.succeeded", "job flights"),
    ]


def test_a_job_that_was_restarted_is_not_restarted_again_before_its_run_is_polled(job, job_manager, now):
    for second in range(0, 100, 2):
        advance(now + timedelta(seconds=second))
    assert RestartAttempt.objects.get().state == "succeeded"
    assert job_manager.count("run") == 1


def test_a_run_that_runs_and_that_no_poll_reads_is_waited_for_within_a_limit(job, now):
    attempt = open_attempt(job, RestartTrigger.MANUAL, "why", "ada", now, restore_path="file:/chk/7")
    write(attempt, launched_at=now)
    runs, limit = Seen(JobOverview(attempt.engine_job_id, "flights", "RUNNING", now, None)), now + LINK_WITHIN
    waits = AwaitRunning().conclude(attempt, runs, limit - timedelta(microseconds=1))
    assert waits == Wait(Why.NEW_RUN_NOT_READ(state="RUNNING"))
    assert AwaitRunning().conclude(attempt, runs, limit) == End(AttemptState.SUCCEEDED, Why.NEW_RUN_IS(state="RUNNING"))


@pytest.mark.usefixtures("cycles_take_no_time")
@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (
            {"for": "memory", "asked": 2, "free": 1, "limit": 3, "position": 1, "length": 1},
            "The new run is CREATED and waits for its turn to start.",
        ),
        (
            {"for": "environment", "kind": "requirements", "step": "installing", "since": 1},
            "The new run is CREATED, and its Python environment is being prepared.",
        ),
    ],
)
def test_the_time_before_its_driver_may_start_is_no_time_of_the_restart(job, job_manager, now, wait, expected):
    job_manager.starts_as = "CREATED"
    job_manager.launch_wait = wait
    moment = now
    for _ in range(8):
        advance(moment)
        moment += timedelta(seconds=2)
    attempt = RestartAttempt.objects.get()

    moment += 5 * TIME_LIMIT
    advance(moment)

    attempt.refresh_from_db()
    assert attempt.steps.order_by("id").last().text == expected
    assert (attempt.state, attempt.deadline_at) == (AttemptState.WAITING, moment + TIME_LIMIT)
    job_manager.launch_wait = None
    advance(moment + timedelta(seconds=2))
    attempt.refresh_from_db()
    assert attempt.deadline_at == moment + TIME_LIMIT, "from then on it has the time that every start has"


def test_an_invalid_state_is_passed_over_for_the_next(rows, job, job_manager, go_on, now):
    rows.checkpoint(job.current_run, 9, external_path="file:/chk/9", triggered_at=rows.ago(10))
    job_manager.invalid_paths = {"file:/chk/9": "chk-9/part-0 is missing"}

    attempt = go_on(job, now)

    assert [life.savepoint_path for life in restarted(job_manager)] == ["file:/chk/7"]
    assert attempt.rejected == [{"path": "file:/chk/9", "why": "chk-9/part-0 is missing"}]
    failed = attempt.steps.get(state="failed")
    assert failed.text == "file:/chk/9 cannot be restored: chk-9/part-0 is missing."


def test_the_state_of_flink_is_checked_in_its_storage(rows, job, job_manager, go_on, now, tmp_path, settings):
    job_manager.can_validate = False
    settings.STATE_ROOTS = [str(tmp_path)]
    whole, damaged = (lay_down("1.20.5-hashmap-0b-checkpoint", tmp_path / f"chk-{number}") for number in (8, 9))
    next(path for path in damaged.iterdir() if path.name != "_metadata").write_bytes(b"cut")
    for minutes, path in ((2, whole), (1, damaged)):
        rows.checkpoint(job.current_run, 10 - minutes, external_path=f"file:{path}", triggered_at=rows.ago(minutes))

    attempt = go_on(job, now)

    assert [life.savepoint_path for life in restarted(job_manager)] == [f"file:{whole}"]
    (refused,) = attempt.rejected
    assert refused["path"] == f"file:{damaged}"
    assert "has 3 bytes instead of" in refused["why"]


def test_a_state_that_the_engine_refuses_at_the_launch_is_passed_over(rows, job, job_manager, now):
    rows.checkpoint(job.current_run, 9, external_path="file:/chk/9", triggered_at=rows.ago(10))
    job_manager.can_validate = False
    job_manager.answers["run"] = (400, "Cannot find meta data file '_metadata' in directory 'file:/chk/9'.")

    advance(now)

    attempt = RestartAttempt.objects.get()
    assert [each["path"] for each in attempt.rejected] == ["file:/chk/9", "file:/chk/7"]
    assert attempt.error.startswith(
        "None of the 2 snapshots could be restored, and Waymark does not start the job without state"
    )


def test_an_engine_error_does_not_reject_a_state(job, job_manager, go_on, now):
    job_manager.answers["validate"] = (500, "Internal server error.")
    advance(now)
    job_manager.answers.clear()
    attempt = go_on(job, now + timedelta(seconds=2))
    assert (attempt.state, attempt.rejected) == ("succeeded", [])


def test_a_job_without_any_state_is_not_started_empty(rows, job, job_manager, now):
    job.current_run.checkpoints.all().delete()

    advance(now)

    attempt = RestartAttempt.objects.get()
    assert attempt.error == (
        "There is no savepoint or retained checkpoint to restore from, "
        "and Waymark does not start the job without state."
    )
    assert job_manager.count("run") == 0
    assert Incident.objects.get().sentence == f"Restart 1 of flights failed: {attempt.error}"


def test_savepoints_only_means_savepoints_only(rows, job, job_manager, go_on, now):
    Job.objects.update(restore_from="savepoint")
    saved = Savepoint.objects.create(
        job=job, run=job.current_run, origin="manual", state="completed", path="file:/sp/1", requested_at=rows.ago(900)
    )
    attempt = go_on(job, now)
    assert (attempt.restore_path, attempt.savepoint) == ("file:/sp/1", saved)


def test_an_answer_lost_after_the_launch_causes_no_second_launch(job, job_manager, go_on, now):
    job_manager.loses_answer_of = {"run"}
    attempt = go_on(job, now)
    assert attempt.state == "succeeded"
    assert (job_manager.count("run"), job_manager.most_alive) == (1, 1)


def test_a_launch_that_never_arrived_is_sent_again_under_the_same_id(job, job_manager, now, go_on):
    job_manager.loses_request_of = {"run"}
    advance(now)
    job_manager.loses_request_of = set()
    advance(now + timedelta(seconds=2))
    assert job_manager.count("run") == 1  # too early to conclude that the request did not arrive

    attempt = go_on(job, now + SEND_AGAIN_AFTER + timedelta(seconds=2))

    assert (attempt.state, attempt.launches) == ("succeeded", 2)
    assert [life.id for life in restarted(job_manager)] == [attempt.engine_job_id]


def test_an_engine_that_has_the_id_already_is_believed(job, job_manager, go_on, now):
    job_manager.answers["run"] = (409, "Job has already been submitted.")
    advance(now)
    attempt = RestartAttempt.objects.get()
    job_manager.answers.clear()
    job_manager.add(attempt.engine_job_id, "flights").savepoint_path = "file:/chk/7"

    assert go_on(job, now + timedelta(seconds=2)).state == "succeeded"
    assert job_manager.count("run") == 1


def test_launches_that_never_appear_fail_and_their_id_protects_the_next_attempt(job, job_manager, now, go_on):
    job_manager.loses_request_of = {"run"}
    first = go_on(job, now, step_s=10)
    assert (first.state, first.launches) == ("failed", MOST_LAUNCHES)
    job_manager.loses_request_of = set()

    second = go_on(job, first.ended_at + timedelta(seconds=30))

    assert second.epoch == 2
    assert second.engine_job_id == first.engine_job_id
    assert second.state == "succeeded"


def test_a_launch_that_starts_late_is_found_by_the_next_attempt(job, job_manager, now, go_on):
    job_manager.loses_request_of = {"run"}
    first = go_on(job, now, step_s=10)
    job_manager.loses_request_of = set()
    moment = first.ended_at + timedelta(seconds=30)
    advance(moment)  # decides the next restart and sends it
    job_manager.add(first.engine_job_id, "flights").savepoint_path = "file:/chk/7"

    go_on(job, moment)

    assert len(job_manager.alive()) == 1


@pytest.mark.parametrize("known_by", ["name", "id"])
def test_a_job_that_recovered_by_itself_is_not_started_again(job, job_manager, now, known_by):
    if known_by == "name":
        job_manager.add("a" * 32, "flights")
    else:
        life = job_manager.jobs[job.current_run.engine_job_id]
        life.state, life.name = "RESTARTING", "renamed"

    advance(now)

    attempt = RestartAttempt.objects.get()
    assert attempt.state == "canceled"
    assert "Nothing was started" in attempt.error
    assert job_manager.count("run") == 0


def test_a_job_that_recovers_right_before_the_launch_is_not_started_again(job, job_manager, now, monkeypatch):
    from monitoring.recovery.stages.stop_job import StopJob

    real = StopJob.conclude

    def come_back(*args):
        job_manager.jobs[job.current_run.engine_job_id].state = "RUNNING"
        return real(*args)

    monkeypatch.setattr(StopJob, "conclude", come_back)
    advance(now)

    assert RestartAttempt.objects.get().state == "canceled"
    assert job_manager.count("run") == 0


@pytest.mark.parametrize("state", ["CANCELED", "FINISHED"])
def test_a_job_that_a_person_started_and_ended_is_not_started_again(job, job_manager, now, monkeypatch, state):
    """No poll has seen that run, because the engine was unreachable."""
    from monitoring.recovery.stages.stop_job import StopJob

    real = StopJob.conclude

    def start_and_end(*args):
        job_manager.add("a" * 32, "flights", state)
        job_manager.end_times["a" * 32] = int(now.timestamp() * 1000)
        return real(*args)

    monkeypatch.setattr(StopJob, "conclude", start_and_end)
    advance(now)

    attempt = RestartAttempt.objects.get()
    assert attempt.state == "canceled"
    assert attempt.error == (
        f"Another run of this job, {'a' * 32}, was started in the meantime and is {state}. Nothing was started."
    )
    assert job_manager.count("run") == 0


def test_a_failed_new_run_is_reported_with_the_engines_reason_and_retried(job, job_manager, go_on, now):
    job_manager.starts_as = "FAILED"
    attempt = go_on(job, now)
    assert (attempt.state, attempt.error) == ("failed", "The new run is FAILED: out of luck")
    assert Incident.objects.get().sentence == "Restart 1 of flights failed: The new run is FAILED: out of luck"

    job_manager.starts_as = "RUNNING"
    second = go_on(job, now + timedelta(seconds=30))
    assert (second.epoch, second.state) == (2, "succeeded")


def test_the_incident_ends_when_the_job_is_back(job, job_manager, go_on, poll, now):
    job_manager.starts_as = "FAILED"
    go_on(job, now)
    job_manager.starts_as = "RUNNING"
    go_on(job, now + timedelta(seconds=30))
    advance(now + timedelta(seconds=60))

    incident = Incident.objects.get()
    assert incident.state == "resolved"
    assert incident.events.last().text.endswith("the job is RUNNING.")
    job.refresh_from_db()
    assert job.automation_note == ""


def test_an_exhausted_budget_notifies_a_person_once(job, job_manager, poll, now):
    job_manager.starts_as = "FAILED"
    moment = now
    for _ in range(25):
        poll(job, moment)
        advance(moment)
        moment += timedelta(seconds=15)

    assert RestartAttempt.objects.count() == 6
    incident = Incident.objects.get()
    assert "its budget of 6 restarts an hour is used up" in incident.sentence
    assert incident.events.filter(kind="opened").count() == 1
    job.refresh_from_db()
    assert job.automation_note == incident.sentence


def test_a_cluster_that_does_not_answer_gets_no_restart(job, job_manager, now):
    job.cluster.unreachable_since = now
    job.cluster.save()
    assert advance(now) == CycleReport(left=(Why.LEFT(job="flights", reason=Why.CLUSTER_SILENT()),))
    assert not job_manager.calls


@pytest.mark.usefixtures("cycles_take_no_time")
def test_pausing_stops_an_attempt_before_it_starts_anything(job, job_manager, now):
    job_manager.hangs_at = set()
    job_manager.loses_request_of = {"validate"}
    advance(now)
    Job.objects.update(automation_paused=True)
    job_manager.loses_request_of = set()

    advance(now + timedelta(seconds=2))

    assert RestartAttempt.objects.get().error == "Nothing was started: its automation is paused."
    assert job_manager.count("run") == 0


def test_an_attempt_that_may_have_started_the_job_remains_open_during_an_outage(job, job_manager, now):
    job_manager.loses_answer_of = {"run"}
    advance(now)
    job_manager.loses_request_of = {"overview"}
    advance(now + timedelta(hours=2))
    assert RestartAttempt.objects.get().state == "launching"


def test_an_attempt_whose_engine_is_silent_before_the_launch_ends_with_its_time(job, job_manager, now):
    job_manager.loses_request_of = {"validate"}
    advance(now)
    attempt = RestartAttempt.objects.get()
    Job.objects.update(auto_restart=False)
    advance(attempt.deadline_at)
    attempt.refresh_from_db()
    assert attempt.state == "failed"
    assert attempt.error.startswith("Gave up after the time limit; last result:")


def test_a_program_missing_on_the_cluster_is_reported(job, job_manager, now):
    job_manager.answers["run"] = (404, "Jar file program.py does not exist")
    advance(now)
    assert RestartAttempt.objects.get().error == (
        "The program is no longer on the cluster: Jar file program.py does not exist"
    )


DIED_OF = [
    {"name": "java.io.IOException", "message": "No space left on device.", "task": "count (1/2)", "at": ""},
    {"name": "ValueError", "message": "an older one", "task": "", "at": ""},
]


class TestWhatItDiedOf:
    def test_the_restart_its_decision_and_its_audit_entry_name_the_exception(self, job, now):
        Run.objects.filter(pk=job.current_run_id).update(exceptions=DIED_OF)
        advance(now)
        text = (
            "flights has been FAILED since 11:59:55 UTC: java.io.IOException: No space left on device (in count (1/2))."
        )
        assert RestartAttempt.objects.get().reason == text
        assert RestartDecision.objects.get().reason == text
        assert AuditEntry.objects.get(action="restart.decide").reason == text

    def test_so_does_the_incident_when_it_is_not_restarted(self, job, now):
        Run.objects.filter(pk=job.current_run_id).update(exceptions=DIED_OF)
        Job.objects.update(launch=None)
        advance(now)
        assert Incident.objects.get().sentence == (
            "flights is dead and is not restarted: Waymark does not know how it was started. "
            "Cause of the failure: java.io.IOException: No space left on device (in count (1/2))."
        )

    def test_a_lost_job_is_not_explained_by_exceptions_it_survived(self, job, now):
        Run.objects.filter(pk=job.current_run_id).update(exceptions=DIED_OF, state="LOST")
        advance(now)
        assert "IOException" not in RestartAttempt.objects.get().reason


def test_the_steps_show_the_detection_delay_and_the_hold_down(rows, job, now):
    Run.objects.filter(pk=job.current_run_id).update(end_seen_at=rows.ago(3))
    advance(now)
    death, decision = RestartAttempt.objects.get().steps.all()[:2]
    assert (death.name, death.started_at, death.ended_at) == ("Detect the failure", rows.ago(5), rows.ago(3))
    assert (decision.name, decision.started_at, decision.ended_at) == ("Decide", rows.ago(3), now)


def test_a_death_is_held_down_from_when_it_was_seen(job, now):
    """The end time is not used, because the engine's clock may be wrong by minutes."""
    Run.objects.filter(pk=job.current_run_id).update(ended_at=now - timedelta(minutes=5), end_seen_at=now)
    assert advance(now).left == (Why.LEFT(job="flights", reason=Why.HELD_DOWN()),)
    assert not RestartAttempt.objects.exists()
    advance(now + timedelta(seconds=2))
    assert RestartAttempt.objects.exists()


def test_each_restart_has_its_decision_also_when_the_reason_is_the_same(job, job_manager, now):
    job.current_run.checkpoints.all().delete()
    for minute in range(3):
        advance(now + timedelta(minutes=minute))
    assert RestartAttempt.objects.count() == 3
    assert RestartDecision.objects.filter(verdict="restart").count() == 3


def test_a_run_that_was_stopped_before_it_was_polled_is_not_started_again(job, job_manager, poll, now):
    advance(now)
    started = RestartAttempt.objects.get().engine_job_id
    job_manager.jobs[started].state = "CANCELED"  # a person cancels it on the engine
    for second in range(2, 60, 2):
        advance(now + timedelta(seconds=second))
    assert RestartAttempt.objects.get().state == "failed"
    assert job_manager.count("run") == 1

    poll(job, now + timedelta(seconds=60))
    advance(now + timedelta(minutes=5))
    assert job_manager.count("run") == 1


@pytest.mark.parametrize("status", [401, 429])
@pytest.mark.parametrize("call", ["validate", "run"])
def test_a_refusal_of_the_caller_or_of_its_rate_does_not_reject_a_state(
    rows, job, job_manager, go_on, now, status, call
):
    rows.checkpoint(job.current_run, 6, external_path="file:/chk/6", triggered_at=rows.ago(100))
    job_manager.answers[call] = (status, "Not so.")
    advance(now)
    job_manager.answers.clear()
    attempt = go_on(job, now + SEND_AGAIN_AFTER)
    assert (attempt.state, attempt.rejected, attempt.restore_path) == ("succeeded", [], "file:/chk/7")
    assert RestartAttempt.objects.get() == attempt


def dies_again(job, job_manager, at):
    """Let the old run end again, after it had returned by itself."""
    job_manager.end_times[job.current_run.engine_job_id] = int(at.timestamp() * 1000)


@pytest.mark.usefixtures("cycles_take_no_time")
def test_a_job_that_recovered_and_died_again_is_held_down_again(job, job_manager, now):
    """The job may return again, so decisions about its earlier death must not start it."""
    job_manager.loses_request_of = {"validate"}
    advance(now)
    dies_again(job, job_manager, now + timedelta(seconds=1))
    job_manager.loses_request_of = set()
    advance(now + timedelta(seconds=2))
    assert RestartAttempt.objects.get().error_value == Why.DIED_AGAIN()
    assert job_manager.count("run") == 0


@pytest.mark.usefixtures("cycles_take_no_time")
def test_a_death_found_by_a_later_poll_is_held_down_again(job, job_manager, now):
    job_manager.loses_request_of = {"validate"}
    advance(now)
    again = now + timedelta(seconds=1)
    Run.objects.filter(pk=job.current_run_id).update(ended_at=again, end_seen_at=again)
    job_manager.loses_request_of = set()
    advance(now + timedelta(seconds=2))
    assert RestartAttempt.objects.get().state == "canceled"
    assert job_manager.count("run") == 0
    advance(now + timedelta(seconds=10))
    assert job_manager.count("run") == 1


@pytest.mark.usefixtures("cycles_take_no_time")
def test_a_decision_ends_with_the_death_of_a_run_that_was_started_since(job, job_manager, poll, now):
    """That run may have newer checkpoints than the run of the decision."""
    job_manager.loses_request_of = {"validate"}
    advance(now)
    job_manager.add("ab" * 16, "flights", "FAILED")
    poll(job, now + timedelta(seconds=1))
    job_manager.loses_request_of = set()
    advance(now + timedelta(seconds=2))
    assert RestartAttempt.objects.get().error_value == Why.DIED_AGAIN()
    assert job_manager.count("run") == 0
    advance(now + timedelta(seconds=10))
    assert RestartAttempt.objects.order_by("epoch").last().old_run == job.runs.order_by("number").last()


@pytest.mark.usefixtures("cycles_take_no_time")
@pytest.mark.parametrize("state", ["RUNNING", "CANCELED"])
def test_the_end_of_a_decision_names_a_later_run_that_has_not_died(job, job_manager, poll, now, state):
    job_manager.loses_request_of = {"validate"}
    advance(now)
    job_manager.add("ab" * 16, "flights", state)
    job_manager.end_times["ab" * 16] = int(now.timestamp() * 1000) if state == "CANCELED" else -1
    poll(job, now + timedelta(seconds=1))
    job_manager.loses_request_of = set()
    advance(now + timedelta(seconds=2))
    why = Why.JOB_LIVES if state == "RUNNING" else Why.OTHER_RUN_ENDED
    assert RestartAttempt.objects.get().error_value == why(id="ab" * 16, state=state)
    assert job_manager.count("run") == 0


@pytest.mark.parametrize(
    ("discarded", "tried"), [(False, ["chk-8"]), (True, ["chk-9", "chk-10"])], ids=["still there", "subsumed"]
)
def test_a_lost_run_restores_the_known_state_or_a_guessed_one_if_it_was_discarded(
    rows, job, job_manager, go_on, now, discarded, tried
):
    seen = rows.checkpoint(job.current_run, 8, external_path="file:/cp/abc/chk-8", triggered_at=rows.ago(20))
    Checkpoint.objects.filter(pk=seen.pk).update(discarded=discarded)
    Run.objects.filter(pk=seen.run_id).update(state="LOST", ended_at=rows.ago(1), checkpoint_config={"interval": 9000})
    job_manager.jobs.clear()
    job_manager.can_validate = False
    gone = "file:/cp/abc/chk-9"
    job_manager.refused_paths = {gone: f"Cannot find checkpoint or savepoint file/directory '{gone}'"}
    attempt = go_on(job, now + timedelta(minutes=1))
    *refused, taken = [f"file:/cp/abc/{each}" for each in tried]
    assert (attempt.state, attempt.restore_path) == ("succeeded", taken)
    assert [each["path"] for each in attempt.rejected] == refused
    assert job_manager.most_alive == 1
