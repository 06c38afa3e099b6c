import time
from datetime import timedelta

import pytest

from dashboard.health import Level, judge_with_cluster
from dashboard.queries.facts import gather_facts
from monitoring.models import Incident, Job, RestartAttempt, Run, Savepoint
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.attempt import AttemptOpen
from monitoring.recovery.cycle import advance
from monitoring.recovery.launching import BadLaunch
from monitoring.recovery.manual import STOPPED_WITH, RestartRefused, cancel_attempt, restart_from


def started(job_manager):
    return [(life.state, life.savepoint_path) for life in job_manager.jobs.values() if life.savepoint_path]


def test_a_live_job_is_stopped_with_a_savepoint_and_started_from_the_chosen_one(
    live, savepoint, job_manager, settle, now
):
    old = live.current_run.engine_job_id
    attempt = settle(restart_from(live, savepoint, "ada", now), now)

    assert attempt.state == "succeeded"
    assert started(job_manager) == [("RUNNING", "file:/sp/1")]
    assert job_manager.jobs[old].state == "FINISHED"
    assert (attempt.stop_savepoint.origin, attempt.stop_savepoint.state) == ("restart", "completed")
    stopped = attempt.steps.get(name="Stop the job")
    assert stopped.text == f"Stopped. Its state is saved at {attempt.stop_savepoint.path}."
    assert job_manager.most_alive == 1


def test_a_live_job_is_cancelled_if_requested(live, savepoint, job_manager, settle, now):
    old = live.current_run.engine_job_id
    attempt = settle(restart_from(live, savepoint, "ada", now, stop_first=False), now)
    assert attempt.state == "succeeded"
    assert job_manager.jobs[old].state == "CANCELED"
    assert not job_manager.savepoints


def test_a_live_job_continues_from_the_savepoint_that_stops_it(live, job_manager, settle, now):
    old = live.current_run.engine_job_id
    attempt = restart_from(live, None, "ada", now)
    assert attempt.reason == "ada requested a restart from the savepoint taken when the job stops."
    attempt = settle(attempt, now)

    assert (attempt.state, attempt.error) == ("succeeded", "")
    assert attempt.savepoint == attempt.stop_savepoint
    assert started(job_manager) == [("RUNNING", attempt.stop_savepoint.path)]
    assert job_manager.jobs[old].state == "FINISHED"
    assert job_manager.most_alive == 1


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, "Stopping with a savepoint."),
        ("file:/sp/1", "Stopping with a savepoint."),
        ("file:/chk/7", "Taking a savepoint before the job is cancelled."),
    ],
)
def test_a_running_savepoint_shows_whether_it_stops_the_job(live, savepoint, job_manager, now, state, expected):
    attempt = restart_from(live, state, "ada", now)
    advance(now)
    assert attempt.steps.get(name="Stop the job").text == expected
    attempt.refresh_from_db()
    assert attempt.stop_savepoint.stops_job is expected.startswith("Stopping")


def test_each_step_begins_at_the_end_of_the_previous_one_and_has_its_duration(
    live, savepoint, job_manager, settle, now
):
    before, launches = job_manager.answer, 0

    def answer(method, path, body):
        nonlocal launches
        if path.endswith("/run"):
            launches += 1
            time.sleep(2)
        return before(method, path, body)

    job_manager.answer = answer
    attempt = settle(restart_from(live, savepoint, "ada", now), now)
    steps = list(attempt.steps.all())
    assert [step.started_at for step in steps[1:]] == [step.ended_at for step in steps[:-1]]
    start = next(step for step in steps if step.name == "Start the job")
    assert (launches, start.ended_at - start.started_at >= timedelta(seconds=2)) == (1, True)


def test_the_job_continues_if_that_savepoint_fails(live, job_manager, settle, now):
    job_manager.answers["stop"] = (400, "The disk is full.")
    attempt = settle(restart_from(live, None, "ada", now), now)
    assert attempt.error_value == Why.SAVEPOINT_FAILED(failure="The disk is full.")
    assert [life.state for life in job_manager.jobs.values()] == ["RUNNING"]


def test_when_the_job_dies_with_that_savepoint_nothing_is_started(live, job_manager, settle, now):
    """The job could only start from an older snapshot, which nobody chose."""
    before, life = job_manager.answer, job_manager.jobs[live.current_run.engine_job_id]

    def answer(method, path, body):
        answered = before(method, path, body)
        if path.endswith("/stop"):
            job_manager.savepoints[body["triggerId"]].failure = "The disk is full."
            life.state = "FAILED"
        return answered

    job_manager.answer = answer
    attempt = settle(restart_from(live, None, "ada", now), now)
    why = "The job ended and its savepoint failed: The disk is full. Nothing was started; choose a snapshot."
    assert (attempt.state, attempt.error) == ("failed", why)
    assert job_manager.count("run") == 0
    incident = Incident.objects.get(job=live)
    assert (incident.state, incident.severity) == ("open", "critical")


def test_a_stopped_job_is_started_only_once_its_savepoint_is_known(live, job_manager, settle, now):
    """The cluster reports the job as finished before it reports the savepoint as complete."""
    before, life = job_manager.answer, job_manager.jobs[live.current_run.engine_job_id]
    overviews_after_stop = []

    def answer(method, path, body):
        answered = before(method, path, body)
        if path.endswith("/stop"):
            life.state = "FINISHED"
        elif path.endswith("/overview") and job_manager.count("stop"):
            overviews_after_stop.append(job_manager.count("run"))
            job_manager.completes_savepoints = len(overviews_after_stop) > 2
        return answered

    job_manager.answer, job_manager.completes_savepoints = answer, False
    attempt = settle(restart_from(live, None, "ada", now), now)
    assert (attempt.state, attempt.error) == ("succeeded", "")
    assert overviews_after_stop[:3] == [0, 0, 0]
    assert started(job_manager) == [("RUNNING", attempt.stop_savepoint.path)]


@pytest.mark.parametrize(
    ("state", "stop_first", "why"),
    [
        ("FAILED", True, Why.BAD_STATE(value="'FAILED'", allowed=Why.CHOOSE_SAVEPOINT())),
        ("RESTARTING", True, Why.BAD_STATE(value="'RESTARTING'", allowed=Why.CHOOSE_SAVEPOINT())),
        (
            *("RUNNING", False),
            Why.BAD_STOP(value="'cancel'", allowed=Why.NOT_STOPPED_WITH_SAVEPOINT(state=STOPPED_WITH)),
        ),
    ],
)
def test_without_such_a_savepoint_nothing_is_stopped(live, now, state, stop_first, why):
    Run.objects.filter(pk=live.current_run_id).update(state=state)
    live.current_run.refresh_from_db()
    with pytest.raises(RestartRefused) as refused:
        restart_from(live, None, "ada", now, stop_first)
    assert refused.value.reason == why
    assert str(refused.value) == str(why)
    assert not RestartAttempt.objects.exists()


def test_a_checkpoint_of_the_live_job_remains_after_the_stop(live, job_manager, settle, now):
    """A job that is stopped with a savepoint is FINISHED, and its retained checkpoints are deleted."""
    old = live.current_run.engine_job_id
    job_manager.checkpoints["file:/chk/7"] = old
    attempt = settle(restart_from(live, "file:/chk/7", "ada", now), now)

    assert (attempt.state, attempt.error) == ("succeeded", "")
    assert started(job_manager) == [("RUNNING", "file:/chk/7")]
    assert job_manager.jobs[old].state == "CANCELED"
    assert attempt.stop_savepoint.state == "completed"
    stopped = attempt.steps.get(name="Stop the job")
    assert stopped.text == f"Stopped. Its state is saved at {attempt.stop_savepoint.path}."
    assert job_manager.most_alive == 1


def test_a_checkpoint_removed_during_the_savepoint_stops_nothing(live, job_manager, settle, now):
    """A newer checkpoint has replaced it meanwhile."""
    before = job_manager.answer

    def answer(method, path, body):
        if path.endswith("/savepoints"):
            job_manager.invalid_paths["file:/chk/7"] = "there is no _metadata"
        return before(method, path, body)

    job_manager.answer = answer
    attempt = settle(restart_from(live, "file:/chk/7", "ada", now), now)
    assert attempt.state == "failed"
    assert attempt.error_value == Why.STATE_GONE(path="file:/chk/7", why="there is no _metadata")
    assert [life.state for life in job_manager.jobs.values()] == ["RUNNING"]
    assert attempt.stop_savepoint.state == "completed"


def test_no_job_is_cancelled_before_the_engine_has_checked_its_checkpoint_again(live, job_manager, settle, now):
    """The earlier check is not sufficient, because a savepoint was taken meanwhile."""
    before = job_manager.answer

    def answer(method, path, body):
        if path.endswith("/savepoints"):
            job_manager.answers_once["validate"] = (500, "the storage is away")
        return before(method, path, body)

    job_manager.answer = answer
    attempt = settle(restart_from(live, "file:/chk/7", "ada", now), now)
    before_the_cancel = job_manager.calls[: job_manager.calls.index("cancel")]
    assert (attempt.state, before_the_cancel.count("validate")) == ("succeeded", 3)


def test_a_savepoint_before_the_cancelling_that_fails_leaves_the_job_running(live, job_manager, settle, now):
    job_manager.answers["trigger"] = (400, "The disk is full.")
    attempt = settle(restart_from(live, "file:/chk/7", "ada", now), now)
    assert attempt.error_value == Why.SAVEPOINT_FAILED(failure="The disk is full.")
    assert [life.state for life in job_manager.jobs.values()] == ["RUNNING"]


def test_a_dead_job_is_just_started(job, savepoint, job_manager, settle, now):
    attempt = settle(restart_from(job, savepoint, "ada", now), now)
    assert attempt.state == "succeeded"
    assert started(job_manager) == [("RUNNING", "file:/sp/1")]


def test_a_chosen_state_that_is_invalid_stops_nothing(live, savepoint, job_manager, settle, now):
    job_manager.invalid_paths = {"file:/sp/1": "_metadata is missing"}
    attempt = settle(restart_from(live, savepoint, "ada", now), now)

    assert (attempt.state, attempt.error) == ("failed", "file:/sp/1 cannot be restored: _metadata is missing.")
    assert [life.state for life in job_manager.jobs.values()] == ["RUNNING"]
    assert not job_manager.count("stop")
    assert not Incident.objects.exists()  # the person who requested it sees the failure


def test_a_savepoint_on_stop_that_fails_leaves_the_job_running(live, savepoint, job_manager, settle, now):
    job_manager.answers["stop"] = (400, "The disk is full.")
    attempt = settle(restart_from(live, savepoint, "ada", now), now)
    assert attempt.error_value == Why.SAVEPOINT_FAILED(failure="The disk is full.")
    assert [life.state for life in job_manager.jobs.values()] == ["RUNNING"]


REFUSED = (400, "The cluster has no slots.")


@pytest.mark.parametrize("from_stop", [True, False])
def test_a_job_that_was_stopped_and_not_started_is_an_incident(
    live, savepoint, job_manager, settle, poll, now, from_stop
):
    """The incident stays open until the job runs again. The job is FINISHED because of the restart, not by choice."""
    job_manager.answers["run"] = REFUSED
    attempt = settle(restart_from(live, None if from_stop else savepoint, "ada", now), now)
    assert attempt.state == "failed"
    incident = Incident.objects.get()
    assert (incident.state, incident.severity) == ("open", "critical")
    assert incident.sentence == f"Restart 1 of flights failed: {attempt.error}"
    for seconds in (1, 60, 600):
        moment = attempt.ended_at + timedelta(seconds=seconds)
        poll(live, moment)
        advance(moment)
    live.refresh_from_db()
    incident.refresh_from_db()
    assert (live.current_run.state, incident.state) == ("FINISHED", "open")
    (shown,) = gather_facts([live], moment)
    assert judge_with_cluster(shown, "", moment)[::3] == (Level.FAILING, incident.sentence)

    job_manager.answers.clear()
    state = savepoint if from_stop else attempt.stop_savepoint
    again = settle(restart_from(live, state, "ada", moment), moment)
    assert again.state == "succeeded"
    advance(moment + timedelta(minutes=1))
    incident.refresh_from_db()
    assert incident.state == "resolved"


def test_a_job_that_was_cancelled_and_not_started_is_an_incident(live, savepoint, job_manager, settle, now):
    job_manager.answers["run"] = REFUSED
    settle(restart_from(live, savepoint, "ada", now, stop_first=False), now)
    assert Incident.objects.get().state == "open"


def test_a_poll_that_was_under_way_at_the_stop_does_not_resolve_it(live, savepoint, job_manager, settle, now):
    job_manager.answers["run"] = REFUSED
    attempt = settle(restart_from(live, savepoint, "ada", now), now)
    later = attempt.ended_at + timedelta(seconds=2)
    Run.objects.filter(pk=attempt.old_run_id).update(state="RUNNING", ended_at=None, observed_at=later)
    advance(later)
    assert Incident.objects.get().state == "open"
    later += timedelta(minutes=1)
    Run.objects.filter(pk=attempt.old_run_id).update(observed_at=later)
    advance(later)
    assert Incident.objects.get().state == "resolved"


def test_a_restart_of_a_job_that_had_ended_before_is_no_incident(job, savepoint, job_manager, settle, now):
    job_manager.answers["run"] = REFUSED
    attempt = settle(restart_from(job, savepoint, "ada", now), now)
    assert attempt.state == "failed"
    assert not Incident.objects.exists()  # the person who requested it sees the failure


def test_a_life_that_the_person_did_not_see_is_not_stopped(live, savepoint, job_manager, settle, now):
    job_manager.jobs[live.current_run.engine_job_id].state = "FINISHED"
    attempt = restart_from(live, savepoint, "ada", now, stop_first=False)
    job_manager.add("a" * 32, "flights")
    advance(now)
    attempt.refresh_from_db()
    assert attempt.error.startswith(f"Another run of this job, {'a' * 32}, is RUNNING.")
    assert job_manager.jobs["a" * 32].state == "RUNNING"


def test_a_known_checkpoint_is_chosen_by_its_path(job, job_manager, settle, now):
    attempt = restart_from(job, "file:///chk/7", "ada", now)
    assert (attempt.restore_is_savepoint, attempt.restore_state_at) == (False, now - timedelta(seconds=60))
    assert settle(attempt, now).state == "succeeded"


def test_a_place_waymark_has_not_seen_is_for_the_cluster_to_judge(job, job_manager, settle, now):
    attempt = settle(restart_from(job, "file:/copied/sp", "ada", now), now)
    assert started(job_manager) == [("RUNNING", "file:/copied/sp")]
    assert attempt.restore_state_at is None


@pytest.mark.parametrize("path", ["", "   ", "file:/a\nb", "x" * 2001])
def test_a_text_that_is_not_a_path_is_refused(job, now, path):
    with pytest.raises(RestartRefused, match=r"^path is"):
        restart_from(job, path, "ada", now)


def test_a_savepoint_of_another_job_is_refused(rows, job, now):
    other = rows.job()
    foreign = Savepoint.objects.create(
        job=other, run=rows.run(other), origin="manual", state="completed", path="file:/sp/x", requested_at=now
    )
    with pytest.raises(RestartRefused) as refused:
        restart_from(job, foreign, "ada", now)
    allowed = Why.SAVEPOINT_OF_JOB_NEEDED(job="flights")
    assert refused.value.reason == Why.BAD_SAVEPOINT(value=repr(str(foreign)), allowed=allowed)


@pytest.mark.parametrize("state", ["deferred", "requested", "in_progress", "failed"])
def test_a_savepoint_that_is_not_complete_is_refused(job, savepoint, now, state):
    savepoint.state = state
    with pytest.raises(RestartRefused) as refused:
        restart_from(job, savepoint, "ada", now)
    assert refused.value.reason == Why.BAD_SAVEPOINT(value=repr(state), allowed=Why.COMPLETED_SAVEPOINT_NEEDED())


@pytest.mark.parametrize(
    ("launch", "field"),
    [
        (None, "kind"),
        ({"kind": "guess"}, "kind"),
        ({"kind": "waymark"}, "jar_id"),
        ({"kind": "waymark", "jar_id": ""}, "jar_id"),
        ({"kind": "waymark", "jar_id": 7}, "jar_id"),
        ({"kind": "waymark", "jar_id": "a.py", "parallelism": 0}, "parallelism"),
        ({"kind": "waymark", "jar_id": "a.py", "program_args": "--x"}, "program_args"),
        ({"kind": "waymark", "jar_id": "a.py", "configuration": []}, None),
        ({"kind": "waymark", "jar_id": "a.py", "configuration": ["x"]}, "configuration"),
    ],
)
def test_a_launch_that_cannot_work_is_refused_and_named(job, savepoint, now, launch, field):
    job.launch = launch
    if field is None:
        assert restart_from(job, savepoint, "ada", now)
        return
    with pytest.raises(BadLaunch, match=rf"^launch\.{field} is"):
        restart_from(job, savepoint, "ada", now)
    assert not RestartAttempt.objects.exists()


def test_a_cluster_that_does_not_answer_is_refused(job, savepoint, now):
    job.cluster.unreachable_since = now
    with pytest.raises(RestartRefused) as refused:
        restart_from(job, savepoint, "ada", now)
    assert refused.value.reason.args["allowed"] == Why.CLUSTER_NEEDED()


def test_the_second_person_gets_the_name_of_the_first(job, savepoint, now):
    stale = Job.objects.get(pk=job.pk)
    restart_from(job, savepoint, "ada", now)
    with pytest.raises(AttemptOpen) as refused:
        restart_from(stale, savepoint, "bob", now)
    assert refused.value.reason == Why.OPEN_MANUAL(job="flights", epoch=1)


def test_a_restart_can_be_cancelled_before_its_first_action(live, savepoint, job_manager, now):
    attempt = restart_from(live, savepoint, "ada", now)
    assert cancel_attempt(attempt, "bob", now)
    advance(now)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.error) == ("canceled", "Canceled by bob.")
    assert not job_manager.calls


def test_a_restart_that_is_stopping_the_job_cannot_be_cancelled(live, savepoint, job_manager, now):
    attempt = restart_from(live, savepoint, "ada", now)
    advance(now)
    assert not cancel_attempt(attempt, "bob", now)


def test_a_person_may_restart_a_job_whose_automation_is_paused(job, savepoint, settle, now):
    Job.objects.update(automation_paused=True)
    job.refresh_from_db()
    assert settle(restart_from(job, savepoint, "ada", now), now).state == "succeeded"


@pytest.mark.usefixtures("cycles_take_no_time")
def test_a_job_that_fails_by_itself_while_it_is_to_be_replaced_is_held_down(live, savepoint, job_manager, now):
    """Flink may revoke the failure. Then two runs would live."""
    restart_from(live, savepoint, "ada", now, stop_first=False)
    job_manager.jobs[live.current_run.engine_job_id].state = "FAILED"
    advance(now)
    Run.objects.update(state="FAILED", ended_at=now, end_seen_at=now + timedelta(seconds=1))
    advance(now + timedelta(seconds=2))
    assert job_manager.count("run") == 0
    advance(now + timedelta(seconds=4))
    assert job_manager.count("run") == 1


@pytest.mark.usefixtures("cycles_take_no_time")
def test_a_run_that_was_started_without_waymark_is_held_down_when_it_fails(job, savepoint, job_manager, poll, now):
    """The person requested the restart while that run lived, and Flink may revoke its failure."""
    attempt = restart_from(job, savepoint, "ada", now)
    job_manager.add("ab" * 16, "flights", "FAILED")
    job_manager.end_times["ab" * 16] = int(now.timestamp() * 1000)
    advance(now)
    assert attempt.steps.get(name="Stop the job").text_value == Why.MAY_BE_TAKEN_BACK(), "it was not polled yet"
    poll(job, now + timedelta(seconds=1))
    advance(now + timedelta(seconds=2))
    assert job_manager.count("run") == 0
    advance(now + timedelta(seconds=4))
    assert job_manager.count("run") == 1
