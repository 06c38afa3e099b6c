"""A new job is started without state, from a savepoint, or from checkpoint locations of Spark."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection

from monitoring.models import Job, RestartAttempt, RunState
from monitoring.reasons.recovery import RecoveryReason
from monitoring.recovery.cycle import advance
from monitoring.recovery.manual import AttemptOpen, Origin, RestartRefused, cancel_attempt, submit
from tests.monitoring.recovery.conftest import LAUNCH

ORDERS = Origin(imports={"orders": "/checkpoints/orders", "late": "/checkpoints/late"})


@pytest.fixture
def cluster(rows, job_manager):
    return rows.cluster(rest_url=job_manager.url)


def test_checkpoint_locations_are_copied_and_the_job_starts_from_the_copy(cluster, job_manager, settle, now):
    attempt = settle(submit(cluster, " orders ", LAUNCH, ORDERS, "ada", now), now)

    assert attempt.state == "succeeded"
    [asked] = job_manager.imports.values()
    assert asked == {
        "checkpoints": dict(ORDERS.imports),
        "entryClass": "program:main",
        "triggerId": attempt.engine_job_id,
    }
    assert job_manager.ran[-1]["savepointPath"] == f"file:/savepoints/savepoint-imported-{attempt.engine_job_id[:12]}"
    assert attempt.reason == "ada submitted orders, to start from /checkpoints/orders, /checkpoints/late."
    assert [(step.name, step.state) for step in attempt.steps.all()][2:4] == [
        ("Copy the checkpoint location", "done"),
        ("Check the state", "done"),
    ]
    job = Job.objects.get(name="orders")
    assert (job.launch, attempt.new_run) == (LAUNCH, job.current_run)


def test_a_submission_waits_for_a_slow_copy(cluster, job_manager, settle, now):
    job_manager.completes_savepoints = False
    attempt = submit(cluster, "orders", LAUNCH, ORDERS, "ada", now)
    for minute in range(0, 40, 5):
        advance(now + timedelta(minutes=minute))
    attempt.refresh_from_db()
    assert (attempt.state, attempt.ended_at) == ("importing", None)
    job_manager.completes_savepoints = True
    assert settle(attempt, now + timedelta(minutes=40)).state == "succeeded"
    assert len(job_manager.imports) == 1


@pytest.mark.parametrize("lost", ["loses_answer_of", "loses_request_of"])
def test_a_lost_answer_causes_no_second_copy(cluster, job_manager, settle, now, lost):
    getattr(job_manager, lost).add("import")
    attempt = submit(cluster, "orders", LAUNCH, ORDERS, "ada", now)
    advance(now)
    getattr(job_manager, lost).clear()
    assert settle(attempt, now + timedelta(seconds=2)).state == "succeeded"
    assert len(job_manager.imports) == 1


def test_a_location_that_is_refused_ends_the_start_with_the_reason(cluster, job_manager, settle, now):
    job_manager.import_fails = "/checkpoints/orders changed while it was read: a query still runs there."
    attempt = settle(submit(cluster, "orders", LAUNCH, ORDERS, "ada", now), now)
    assert (attempt.state, job_manager.ran) == ("failed", [])
    assert attempt.error == f"The checkpoint location cannot be imported: {job_manager.import_fails}"


def test_an_engine_that_cannot_import_is_distinguished(cluster, job_manager, settle, now):
    job_manager.answers["import"] = (404, "Not found.")
    attempt = settle(submit(cluster, "orders", LAUNCH, ORDERS, "ada", now), now)
    assert attempt.error.endswith("the cluster cannot import checkpoint locations. Only Waymark's job manager can.")


def test_a_submission_can_be_canceled_while_the_state_is_copied(cluster, job_manager, now):
    job_manager.completes_savepoints = False
    attempt = submit(cluster, "orders", LAUNCH, ORDERS, "ada", now)
    advance(now)
    assert cancel_attempt(attempt, "ada", now)
    advance(now + timedelta(seconds=5))
    assert job_manager.ran == []


def test_without_state_it_starts_at_once(cluster, job_manager, settle, now):
    attempt = settle(submit(cluster, "orders", LAUNCH, Origin(), "ada", now), now)
    assert (attempt.state, attempt.start_empty) == ("succeeded", True)
    assert "savepointPath" not in job_manager.ran[-1]
    assert [step.text for step in attempt.steps.filter(name="Check the state")] == ["The job starts without state."]


def test_a_savepoint_is_checked_before_it_is_used(cluster, job_manager, settle, now):
    job_manager.invalid_paths["/sp/1"] = "state/0 is missing"
    attempt = settle(submit(cluster, "orders", LAUNCH, Origin("/sp/1"), "ada", now), now)
    assert (attempt.state, job_manager.ran) == ("failed", [])
    assert "/sp/1 cannot be restored: state/0 is missing." in attempt.error


def test_the_name_of_a_job_that_never_ran_is_free_again(cluster, job_manager, settle, now):
    job_manager.answers["run"] = (400, "The program is no program.")
    assert settle(submit(cluster, "orders", LAUNCH, Origin(), "ada", now), now).state == "failed"
    job_manager.answers.clear()
    again = {**LAUNCH, "parallelism": 4}
    later = now + timedelta(minutes=2)
    assert settle(submit(cluster, "orders", again, Origin(), "ada", later), later).state == "succeeded"
    assert Job.objects.get().launch == again


@pytest.mark.parametrize(
    ("state", "checkpoints", "is_free"), [("FAILED", 0, True), ("FAILED", 1, False), ("RUNNING", 0, False)]
)
def test_the_name_of_a_job_that_left_no_state_is_free_again(cluster, rows, now, state, checkpoints, is_free):
    job = rows.job(cluster, name="orders", launch=LAUNCH)
    run = rows.run(job, RunState(state))
    for number in range(checkpoints):
        rows.checkpoint(run, number + 1, external_path=f"file:/chk/{number}")
    if is_free:
        assert submit(cluster, "orders", LAUNCH, Origin(), "ada", now).job == job
    else:
        with pytest.raises(RestartRefused, match="name is 'orders'"):
            submit(cluster, "orders", LAUNCH, Origin(), "ada", now)


@pytest.mark.django_db(transaction=True)
def test_one_of_two_concurrent_submissions_starts(cluster, now):
    together = Barrier(2, timeout=30)

    def send(parallelism):
        together.wait()
        try:
            return submit(cluster, "orders", {**LAUNCH, "parallelism": parallelism}, Origin(), "ada", now)
        except AttemptOpen:
            return None
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        started = [attempt for attempt in pool.map(send, (1, 2)) if attempt]
    assert [attempt.launch for attempt in started] == [Job.objects.get().launch]


def test_the_name_of_another_job_is_refused(job, now):
    with pytest.raises(RestartRefused) as refused:
        submit(job.cluster, "flights", LAUNCH, Origin(), "ada", now)
    allowed = RecoveryReason.FREE_NAME_NEEDED(cluster=str(job.cluster))
    assert refused.value.reason == RecoveryReason.BAD_NAME(value="'flights'", allowed=allowed)
    assert not RestartAttempt.objects.exists()
