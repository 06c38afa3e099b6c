"""An attempt is interrupted or repeated at every point where a worker can die. The job is started once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Semaphore

import pytest
from django.db import connection

from monitoring.engine.identity import identity_of
from monitoring.models import Cluster, Job, RestartAttempt, RestartTrigger
from monitoring.reasons.recovery import RecoveryReason
from monitoring.recovery import cycle, moving
from monitoring.recovery.attempt import AttemptOpen, open_attempt
from monitoring.recovery.cycle import advance
from monitoring.recovery.moving import CLAIM
from monitoring.recovery.stages import start_job
from monitoring.recovery.stages.await_running import AwaitRunning
from monitoring.recovery.stages.base import Overtaken, write
from monitoring.recovery.stages.check_state import CheckState
from monitoring.recovery.stages.start_job import StartJob
from monitoring.recovery.stages.stop_job import StopJob

STAGES = (CheckState, StopJob, StartJob, AwaitRunning)


class Killed(BaseException):
    """Raised instead of a SIGKILL: no handler runs and nothing is cleaned up."""


def kill_at(patch, owner, name, after):
    """Raise Killed when `owner.name` is called, before or after its work."""
    real = getattr(owner, name)

    def die(*args, **kwargs):
        if after:
            real(*args, **kwargs)
        raise Killed

    patch.setattr(owner, name, die)


POINTS = [
    *((stage, name, after) for stage in STAGES for name in ("plan", "conclude") for after in (False, True)),
    (moving, "call_all", False),
    (moving, "call_all", True),
    (moving, "apply", False),
    (moving, "apply", True),
    (start_job, "write", False),
    (start_job, "write", True),
]


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    POINTS,
    ids=[
        f"{owner.__name__.rpartition('.')[2]}.{name} {'after' if after else 'before'}" for owner, name, after in POINTS
    ],
)
def test_a_worker_killed_at_any_point_causes_one_launch(job, job_manager, go_on, now, monkeypatch, owner, name, after):
    moment = now
    with monkeypatch.context() as patch:
        kill_at(patch, owner, name, after)
        with pytest.raises(Killed):
            go_on(job, moment)

    attempt = go_on(job, moment + CLAIM)

    assert attempt.state == "succeeded"
    assert (len(job_manager.alive()), job_manager.most_alive) == (1, 1)
    assert RestartAttempt.objects.count() == 1


@pytest.mark.parametrize("round_of_death", range(4))
@pytest.mark.parametrize("acted", [False, True])
def test_a_worker_killed_around_any_engine_call_causes_one_launch(
    job, job_manager, go_on, now, monkeypatch, round_of_death, acted
):
    real, rounds = moving.call_all, []

    def die_in_round(calls):
        rounds.append(calls)
        if len(rounds) <= round_of_death:
            return real(calls)
        if acted:
            real(calls)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(moving, "call_all", die_in_round)
        with pytest.raises(Killed):
            go_on(job, now)

    assert go_on(job, now + CLAIM).state == "succeeded"
    assert (len(job_manager.alive()), job_manager.most_alive) == (1, 1)


def test_no_other_worker_processes_an_attempt_while_its_claim_is_valid(job, job_manager, now, monkeypatch):
    with monkeypatch.context() as patch:
        kill_at(patch, moving, "call_all", after=False)
        with pytest.raises(Killed):
            advance(now)
    calls = len(job_manager.calls)

    advance(now + CLAIM - timedelta(seconds=1))
    assert len(job_manager.calls) == calls


def test_one_of_two_workers_that_saw_a_free_attempt_claims_it(job, now):
    open_attempt(job, RestartTrigger.AUTOMATIC, "dead", "waymark", now)
    (seen,), (seen_too,) = moving._due(now), moving._due(now)

    assert moving._claim(seen, seen.claimed_until, now)
    assert moving._claim(seen_too, seen_too.claimed_until, now) is None


def test_a_worker_that_lost_its_claim_writes_nothing(job, now):
    attempt = open_attempt(job, RestartTrigger.MANUAL, "why", "ada", now, restore_path="file:/chk/7")
    attempt.claimed_until = now  # the claim that the worker believes to hold
    with pytest.raises(Overtaken):
        write(attempt, state="launching")
    attempt.refresh_from_db()
    assert attempt.state == "decided"


def taken_by_another(attempt, now):
    RestartAttempt.objects.filter(pk=attempt.pk).update(claimed_until=now + CLAIM + timedelta(seconds=1))


def test_a_worker_that_lost_its_claim_sends_no_launch(job, job_manager, now, monkeypatch):
    def plan(stage, attempt, moment, real=StartJob.plan):
        taken_by_another(attempt, moment)
        return real(stage, attempt, moment)

    monkeypatch.setattr(StartJob, "plan", plan)
    advance(now)
    attempt = RestartAttempt.objects.get()
    assert (attempt.state, attempt.launch_sent_at, attempt.launches) == ("launching", None, 0)
    assert job_manager.count("run") == 0


def test_the_launch_of_a_worker_that_lost_its_claim_is_found_by_the_next_one(job, job_manager, go_on, now, monkeypatch):
    def overtaken(attempt, answer, decided, moment, real=moving.apply):
        if isinstance(answer, start_job.Launched):
            taken_by_another(attempt, moment)
        return real(attempt, answer, decided, moment)

    with monkeypatch.context() as patch:
        patch.setattr(moving, "apply", overtaken)
        cycle._decide_all(now)
        assert moving.move_attempts(now) == {RecoveryReason.OVERTAKEN: 1}
    attempt = RestartAttempt.objects.get()
    assert (attempt.state, attempt.launched_at, job_manager.count("run")) == ("launching", None, 1)

    assert go_on(job, now + 2 * CLAIM).state == "succeeded"
    assert (job_manager.count("run"), job_manager.most_alive) == (1, 1)


@pytest.mark.parametrize("trouble", [{"loses_request_of": {"config"}}, {"answers": {"config": (500, "busy")}}])
def test_nothing_is_launched_before_the_identity_of_the_cluster_is_known(job, job_manager, go_on, now, trouble):
    """Another cluster may answer at the address, and a launch there would create a second run of the job."""
    job_manager.config = {"high-availability.type": "zookeeper", "high-availability.cluster-id": "/demo"}
    known = identity_of(job_manager.config)
    Cluster.objects.filter(pk=job.cluster_id).update(identity=known.as_row())
    attempt = open_attempt(job, RestartTrigger.AUTOMATIC, "dead", "waymark", now, restore_path="file:/chk/7")
    RestartAttempt.objects.filter(pk=attempt.pk).update(state="launching")
    vars(job_manager).update(trouble)
    advance(now)
    attempt.refresh_from_db()
    assert "config" in job_manager.calls
    assert (attempt.state, job_manager.count("run")) == ("launching", 0)

    vars(job_manager).update(loses_request_of=set(), answers={})
    assert go_on(job, now + CLAIM).state == "succeeded"
    assert (job_manager.count("run"), job_manager.most_alive) == (1, 1)


def test_a_cluster_without_an_identity_is_accepted_as_that_of_the_job(job, job_manager, go_on, now):
    known = identity_of({"high-availability.type": "zookeeper", "high-availability.cluster-id": "/demo"})
    Cluster.objects.filter(pk=job.cluster_id).update(identity=known.as_row())
    job_manager.answers["config"] = (404, "Not found.")
    assert go_on(job, now).state == "succeeded"


def test_an_attempt_without_a_state_starts_nothing(job, job_manager, now):
    attempt = open_attempt(job, RestartTrigger.AUTOMATIC, "dead", "waymark", now)
    RestartAttempt.objects.filter(pk=attempt.pk).update(state="launching", restore_path="")
    advance(now)
    attempt.refresh_from_db()
    assert (attempt.state, job_manager.count("run")) == ("failed", 0)
    assert attempt.error == "There is no snapshot to restore, and Waymark does not start the job without state."


def test_two_that_saw_the_same_death_decide_once(job, now):
    stale = Job.objects.select_related("current_run").get(pk=job.pk)
    first = open_attempt(job, RestartTrigger.AUTOMATIC, "dead", "waymark", now)

    with pytest.raises(AttemptOpen) as refused:
        open_attempt(stale, RestartTrigger.MANUAL, "by hand", "ada", now)
    assert refused.value.attempt == first
    assert refused.value.reason == RecoveryReason.OPEN_AUTOMATIC(job="flights", epoch=1)


def test_a_decision_about_an_earlier_run_is_ignored(rows, job, now):
    stale = Job.objects.get(pk=job.pk)
    rows.run(job)
    with pytest.raises(AttemptOpen):
        open_attempt(stale, RestartTrigger.AUTOMATIC, "dead", "waymark", now)
    assert not RestartAttempt.objects.exists()


def test_a_second_attempt_is_refused_while_one_is_open(job, now):
    open_attempt(job, RestartTrigger.AUTOMATIC, "dead", "waymark", now)
    with pytest.raises(AttemptOpen):
        open_attempt(job, RestartTrigger.MANUAL, "by hand", "ada", now)


@pytest.mark.django_db(transaction=True)
def test_four_workers_at_once_launch_once(job, job_manager, poll, now, monkeypatch):
    monkeypatch.setattr(moving, "_moves", Semaphore(4))  # as if each worker were a separate process

    def work(worker):
        try:
            return [advance(now + timedelta(seconds=step)) for step in range(0, 6, 2)]
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert RestartAttempt.objects.count() == 1
    assert (job_manager.count("run"), job_manager.most_alive) == (1, 1)


def test_a_clock_that_was_set_back_does_not_delay_a_restart(job, job_manager, now, monkeypatch):
    with monkeypatch.context() as patch:
        kill_at(patch, moving, "call_all", after=False)
        with pytest.raises(Killed):
            advance(now)
    advance(now - timedelta(hours=1))
    assert job_manager.count("run") == 1
