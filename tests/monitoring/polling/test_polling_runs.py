"""Jobs and runs: how they are matched, how their statuses change, and that a missing answer proves nothing."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monitoring.engine.client import FlinkClient
from monitoring.engine.evidence import HOLD_DOWN
from monitoring.models import Checkpoint, Cluster, Engine, Job, Run, RunStateChange, Savepoint, SavepointOrigin
from monitoring.models import SavepointState as State
from monitoring.polling.poller import Poller
from monitoring.reasons.engines import EngineReason

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)


def moves(run: Run) -> list[tuple[str, str]]:
    return list(RunStateChange.objects.filter(run=run).order_by("id").values_list("source", "target"))


def failure(at: int, message: str = "it went boom") -> dict:
    trace = f"a.FlinkException: task failed\n\tat a.B\nCaused by: java.lang.IllegalStateException: {message}\n\tat c.D"
    return {
        "exceptionName": "org.apache.flink.FlinkException",
        "stacktrace": trace,
        "timestamp": at,
        "taskName": "count",
    }


def test_a_restart_is_the_next_run_of_the_same_job_with_its_restored_snapshot(engine, cluster, poll):
    first = engine.job()
    first.add(1, 2)
    poll()
    first.state, first.ended = "FAILED", first.started + 9000
    second = engine.job(started=first.started + 60_000)
    second.restored = {
        "id": 2,
        "restore_timestamp": second.started + 500,
        "is_savepoint": True,
        "external_path": "file:/sp/savepoint-1",
    }
    second.add(3)
    poll()
    job = Job.objects.get()
    one, two = job.runs.order_by("number")
    assert (one.number, one.state, two.number, two.state) == (1, "FAILED", 2, "RUNNING")
    assert (two.restored_path, two.restored_checkpoint_id, two.restored_is_savepoint) == (
        "file:/sp/savepoint-1",
        2,
        True,
    )
    assert job.current_run_id == two.pk
    assert moves(one) == [("", "RUNNING"), ("RUNNING", "FAILED")]
    assert moves(two) == [("", "RUNNING")]


def test_a_failed_run_has_its_cause_and_is_read_to_its_end_once(engine, cluster, poll):
    job = engine.job()
    job.add(1)
    poll()
    job.add(2, status="FAILED")
    job.state, job.ended = "FAILED", job.started + 9000
    job.exceptions = [failure(job.started + 8000)]
    poll()
    run = Run.objects.get()
    assert (run.state, run.exception, run.final_read_done) == ("FAILED", "it went boom", False)
    assert run.ended_at is not None
    assert RunStateChange.objects.get(target="FAILED").why == "it went boom"
    assert Checkpoint.objects.get(checkpoint_id=2).status == "FAILED"
    poll()
    assert Run.objects.get().final_read_done
    engine.asked.clear()
    poll()
    assert engine.asked == ["/jobs/overview"]


def test_facts_missing_in_an_answer_before_the_end_are_read(engine, cluster, poll):
    """Flink caches its answers for three seconds. Just after a run's end, they lack its last checkpoint."""
    job = engine.job()
    job.add(1)
    poll()
    job.state, job.ended = "FINISHED", job.started + 9000
    poll()
    assert not Run.objects.get().final_read_done
    job.add(2)
    poll(after_s=3.0)
    assert not Run.objects.get().final_read_done
    job.add(3)
    poll(after_s=3.0)
    assert Run.objects.get().final_read_done
    assert sorted(Checkpoint.objects.values_list("checkpoint_id", flat=True)) == [1, 2, 3]


@pytest.mark.parametrize(("reported", "kept_s"), [({}, 3.2), ({"web.refresh-interval": "700"}, 0.9)])
def test_the_last_read_of_a_dead_run_is_planned_for_when_it_can_be_believed(engine, watch, poll, reported, kept_s):
    """This holds for any poll interval, because a restart waits for the last read."""
    engine.instead["/jobmanager/config"] = [{"key": key, "value": value} for key, value in reported.items()]
    watch(engine, poll_interval_s=60)
    job = engine.job()
    poll()
    job.state, job.ended = "FAILED", job.started + 9000
    poll(after_s=120)
    run = Run.objects.get()
    assert not run.final_read_done
    assert Cluster.objects.get().next_poll_at == run.end_seen_at + timedelta(seconds=kept_s)
    poll(after_s=kept_s)
    assert Run.objects.get().final_read_done
    assert Cluster.objects.get().next_poll_at > poll.clock + timedelta(seconds=20)


def test_an_answer_is_as_old_as_its_question(engine, cluster, poll):
    """A slow poll returns the status at the time of the request."""
    job = engine.job()
    poll()
    job.state, job.ended = "FAILED", job.started + 9000
    poll()
    answer = engine.answer

    def slowly(path):
        if path.endswith("/checkpoints"):
            poll.clock += timedelta(seconds=10)
        return answer(path)

    engine.answer = slowly
    poll(after_s=1)
    assert not Run.objects.get().final_read_done


def test_the_end_of_a_hold_down_is_planned(engine, watch, poll):
    watch(engine, poll_interval_s=60)
    ended = engine.job(name="ended")  # with a second job, because an empty list has a longer hold-down
    ended.state, ended.ended = "FINISHED", ended.started + 9000
    engine.job()
    poll()
    engine.jobs.pop()
    poll(after_s=120)
    since = Run.objects.get(missing_polls=1).missing_since
    while (wait := Cluster.objects.get().next_poll_at - poll.clock) and Run.objects.filter(state="RUNNING").exists():
        poll(after_s=wait.total_seconds())
    assert Run.objects.get(state="LOST").end_seen_at == since + HOLD_DOWN


def test_a_run_that_ended_long_ago_is_read_once(engine, cluster, poll):
    job = engine.job()
    job.add(1)
    job.started -= 86_400_000
    job.state, job.ended = "FAILED", job.started + 9000
    poll()
    assert Run.objects.get().final_read_done


def test_a_restart_by_the_engine_between_two_polls_is_seen_by_its_restore(engine, cluster, poll):
    job = engine.job()
    job.add(1, 2)
    poll()
    job.restored = {"id": 2, "restore_timestamp": job.started + 9000, "is_savepoint": False, "external_path": "file:/2"}
    job.exceptions = [failure(job.started + 8000)]
    job.add(3)
    assert "restarted the job from checkpoint 2" in poll()
    run = Run.objects.get()
    assert (run.state, run.exception, run.restored_checkpoint_id) == ("RUNNING", "it went boom", 2)
    assert moves(run) == [("", "RUNNING"), ("RUNNING", "RUNNING")]
    poll()
    assert len(moves(run)) == 2


def test_a_restart_that_restored_no_checkpoint_is_seen_by_its_failure(engine, cluster, poll):
    """The restart continued from local state, perhaps with other vertices."""
    job = engine.job()
    job.add(1, 2)
    poll()
    failed = time.time_ns() // 1_000_000
    job.exceptions = [failure(failed)]
    job.moved = failed + 500
    engine.asked.clear()
    assert "restarted the job after: it went boom" in poll()
    assert f"/jobs/{job.id}" in engine.asked, "its vertices may be others"
    run = Run.objects.get()
    assert moves(run) == [("", "RUNNING"), ("RUNNING", "RUNNING")]
    poll()
    assert len(moves(run)) == 2


def test_an_exception_that_restarted_nothing_is_not_a_restart(engine, cluster, poll):
    job = engine.job()
    job.add(1)
    poll()
    job.moved = time.time_ns() // 1_000_000
    job.exceptions = [failure(job.moved + 500, "a file could not be removed")]
    poll()
    run = Run.objects.get()
    assert run.exception == "a file could not be removed"
    assert moves(run) == [("", "RUNNING")]


def test_exceptions_that_the_engine_lost_are_kept(engine, cluster, poll):
    job = engine.job(state="RESTARTING", exceptions=[failure(1_795_000_000_000, "the first")])
    poll()
    job.exceptions = [failure(1_795_000_100_000, "the second")]
    poll()
    run = Run.objects.get()
    assert ([one["message"] for one in run.exceptions], run.exception) == (["the second", "the first"], "the second")


def test_a_failed_job_that_returns_under_its_id_is_alive_again(engine, cluster, poll):
    """The job did not start again, because its start time is the same."""
    job = engine.job(state="FAILED")
    job.ended = job.started + 40_000
    poll()
    job.state, job.ended = "RUNNING", -1
    job.add(1)
    poll()
    run = Run.objects.get()
    assert (run.state, run.live, run.ended_at, run.final_read_done) == ("RUNNING", True, None, False)
    assert run.checkpoints.count() == 1
    assert RunStateChange.objects.get(source="FAILED").why_value == EngineReason.NAMED_AGAIN()


def test_a_job_that_vanished_is_lost_only_after_the_hold_down(engine, cluster, poll):
    job, other = engine.job(), engine.job(name="other")
    job.add(1, status="IN_PROGRESS")
    poll()
    engine.jobs.remove(job)
    poll(5)
    run = Run.objects.get(engine_job_id=job.id)
    assert (run.state, run.missing_polls) == ("RUNNING", 1)
    poll(10)
    run.refresh_from_db()
    assert run.state == "RUNNING", "two polls, but not yet 30 s"
    poll(25)
    run.refresh_from_db()
    assert (run.state, run.live, run.ended_at) == ("LOST", False, run.missing_since)
    lost = RunStateChange.objects.get(target="LOST")
    assert lost.why_value == EngineReason.JOB_UNKNOWN(polls=3, seconds=35)
    assert lost.why == "The engine responds but does not know the job: 3 polls in 35 s."
    pending = Checkpoint.objects.get(run=run)
    assert (pending.status, pending.final) == ("FAILED", True)
    assert Run.objects.get(engine_job_id=other.id).state == "RUNNING"


def test_a_job_in_no_list_is_not_lost_while_the_engine_does_not_deny_it(engine, cluster, poll):
    """A job manager that has not recovered a job yet does not list it, and answers 503 to requests for it."""
    job, _ = engine.job(), engine.job(name="other")
    poll()
    engine.jobs.remove(job)
    poll(5)
    engine.refused[f"/jobs/{job.id}"] = (503, "The job is stored, but could not be recovered yet.")
    poll(60)
    poll(60)
    run = Run.objects.get(engine_job_id=job.id)
    assert (run.state, run.missing_since, run.missing_polls) == ("RUNNING", None, 0)
    engine.refused.clear()
    poll(60)
    poll(60)
    run.refresh_from_db()
    assert run.state == "LOST"


def test_an_outage_ends_the_hold_down_without_a_verdict(engine, cluster, poll):
    job, _ = engine.job(), engine.job(name="other")
    poll()
    engine.jobs.remove(job)
    poll(5)
    engine.down_with = (503, "Service temporarily unavailable due to an ongoing leader election. Please refresh.")
    poll(60)
    poll(600)
    engine.down_with = None
    poll(60)
    run = Run.objects.get(engine_job_id=job.id)
    assert (run.state, run.missing_polls) == ("RUNNING", 1)


def test_a_job_that_is_named_again_in_time_was_never_lost(engine, cluster, poll):
    job, _ = engine.job(), engine.job(name="other")
    poll()
    engine.jobs.remove(job)
    poll(10)
    engine.jobs.append(job)
    poll(60)
    run = Run.objects.get(engine_job_id=job.id)
    assert (run.state, run.missing_since, run.missing_polls) == ("RUNNING", None, 0)


def test_the_hold_down_is_longer_for_a_new_empty_job_manager(engine, cluster, poll):
    engine.job()
    poll()
    engine.jobs.clear()
    poll(5)
    poll(60)
    assert Run.objects.get().state == "RUNNING"
    poll(60)
    assert Run.objects.get().state == "LOST"


def refuse(engine, poll):
    engine.down_with = (503, "org.apache.flink.X: leader election")


def initialising(engine, poll):
    engine.down_with = (500, "Internal server error. UnavailableDispatcherOperationException")


def hang(engine, poll):
    engine.hang, poll.limit_s = ".*", 0.3


def cut_short(engine, poll):
    engine.cut_short = True


def not_json(engine, poll):
    engine.instead["/jobs/overview"] = "<html>sign in</html>"


def wrong_types(engine, poll):
    engine.instead["/jobs/overview"] = {"jobs": [{"jid": 7}]}


def huge_number(engine, poll):
    engine.instead["/jobs/overview"] = {"jobs": [{**engine.jobs[0].overview(), "start-time": 10**30}]}


def too_large(engine, poll):
    engine.instead["/jobs/overview"] = '{"jobs": [' + " " * (17 * 1024 * 1024) + "]}"


@pytest.mark.parametrize(
    "fault", [refuse, initialising, hang, cut_short, not_json, wrong_types, huge_number, too_large]
)
def test_runs_do_not_change_while_the_cluster_does_not_answer(engine, cluster, poll, fault):
    job = engine.job()
    job.add(1, 2)
    poll()
    fault(engine, poll)
    assert "does not answer" in poll()
    since = poll.clock
    assert poll(300) == "", "said once"
    cluster.refresh_from_db()
    assert (cluster.reachable, cluster.unreachable_since, cluster.consecutive_failures) == (False, since, 2)
    assert cluster.last_error
    assert cluster.next_poll_at > poll.clock
    run = Run.objects.get()
    assert (run.state, run.checkpoints.count(), run.missing_polls) == ("RUNNING", 2, 0)
    engine.down_with, engine.hang, engine.cut_short = None, "", False
    engine.instead.clear()
    engine.released.set()
    poll.limit_s = 30.0
    assert "answers again" in poll()
    cluster.refresh_from_db()
    assert (cluster.reachable, cluster.consecutive_failures, cluster.last_error) == (True, 0, "")


def test_an_unreadable_entry_of_the_list_does_not_affect_the_others(engine, cluster, poll):
    sick, well = engine.job(name="sick"), engine.job(name="well")
    poll()
    well.add(1)
    engine.instead["/jobs/overview"] = {"jobs": [{**sick.overview(), "state": "DANCING"}, well.overview()]}
    poll()
    cluster.refresh_from_db()
    assert cluster.reachable
    assert cluster.last_error_value == EngineReason.NOT_A_JOB_STATE(value="DANCING")
    assert cluster.last_error == "'DANCING' is not a job state."
    assert Checkpoint.objects.get().run.engine_job_id == well.id
    run = Run.objects.get(engine_job_id=sick.id)
    assert (run.state, run.missing_polls) == ("RUNNING", 0)
    engine.instead.clear()
    poll()
    cluster.refresh_from_db()
    assert (cluster.last_error, cluster.last_error_value) == ("", None)


def test_a_hanging_job_does_not_affect_the_others(engine, cluster, poll):
    slow, quick = engine.job(name="slow"), engine.job(name="quick")
    quick.add(1)
    engine.hang = f"/jobs/{slow.id}/.*"

    class Impatient(FlinkClient):
        """A client with a short time limit, but only for requests that hang."""

        async def _read(self, method: str, path: str, limit_s: float, **sent: Any) -> bytes:
            return await super()._read(method, path, 0.3 if re.fullmatch(engine.hang, path) else limit_s, **sent)

    poll.make_client = lambda connection: Impatient(connection, read_limit_s=poll.limit_s)
    poll()
    cluster.refresh_from_db()
    assert cluster.reachable
    assert "did not answer" in cluster.last_error
    assert Checkpoint.objects.get().run.job.name == "quick"
    assert Run.objects.get(job__name="slow").state == "RUNNING"


def test_a_hanging_cluster_does_not_delay_the_rows_of_others(engine, make_engine, watch, poll):
    hanging = make_engine()
    hanging.hang, hanging.down_with = ".*", (503, "leader election")  # this answer comes when it is released
    silent, sound = watch(hanging), watch(engine)
    engine.job().add(1)
    began = time.monotonic()

    def now() -> datetime:
        return START + timedelta(seconds=time.monotonic() - began)

    with Poller(now, poll.make_client) as poller:
        poller.start_due()
        while poller.in_flight > 1:
            poller.serve(30.0)
        assert Checkpoint.objects.count() == 1
        released_at = now()
        hanging.released.set()
        while poller.in_flight:
            poller.serve(30.0)
    silent.refresh_from_db()
    sound.refresh_from_db()
    assert sound.last_answer_at <= released_at <= silent.unreachable_since


def test_an_answer_that_cannot_be_stored_is_counted_and_tried_later(engine, make_engine, watch, poll, monkeypatch):
    broken, sound = watch(make_engine()), watch(engine)
    engine.job()
    from monitoring.polling import poller

    write = poller.store

    def failing(claim, *given):
        if claim.cluster == broken:
            raise ValueError("no such column")
        return write(claim, *given)

    monkeypatch.setattr(poller, "store", failing)
    poll()
    broken.refresh_from_db()
    assert (broken.consecutive_failures, broken.last_error) == (1, "ValueError: no such column")
    assert (broken.next_poll_at > poll.clock, broken.poll_claimed_until) == (True, None)
    assert Run.objects.get().job.cluster_id == sound.pk


def test_waymarks_job_manager_reports_how_to_start_a_job_again(engine, cluster, poll):
    engine.version = "waymark-0.1.0"
    program = {"jarId": "1_wordcount.py", "entryClass": "wordcount:main", "programArgsList": ["--x"], "parallelism": 2}
    engine.job(launch={**program, "savepointPath": "file:/sp/1", "flinkConfiguration": {"spark.x": "y"}})
    poll()
    cluster.refresh_from_db()
    assert Job.objects.get().launch == {
        "kind": "waymark",
        "jar_id": "1_wordcount.py",
        "entry_class": "wordcount:main",
        "program_args": ["--x"],
        "parallelism": 2,
        "configuration": {"spark.x": "y"},
    }
    assert cluster.engine == Engine.SPARK


def test_a_job_with_a_too_long_or_unstorable_name_is_stored(engine, cluster, poll):
    engine.job(name="a" * 700 + "1")
    engine.job(name="a" * 700 + "2")
    engine.job(name="nul\x00 and half a pair \ud800")
    poll()
    poll()
    assert Job.objects.count() == 3
    assert Job.objects.filter(name="nul\ufffd and half a pair \ufffd\ufffd\ufffd").exists()


def test_two_jobs_of_one_name_are_two_runs_and_the_living_one_is_current(engine, cluster, poll):
    living = engine.job()
    poll()
    engine.job(started=living.started + 5000, state="FAILED", ended=living.started + 6000)
    poll()
    assert Job.objects.get().current_run.engine_job_id == living.id
    assert Run.objects.count() == 2


def ended_by_itself(job, **end):
    """Return the answer of Waymark's job manager to /jobs/:id."""
    source = {"write-records": 100, "write-records-complete": True}
    metrics = [("source", source), ("sink", {})]
    vertices = [
        {"id": f"{number}" * 32, "name": kind, "parallelism": 1, "status": job.state, "kind": kind, "metrics": metrics}
        for number, (kind, metrics) in enumerate(metrics, start=1)
    ]
    reported = {"is-saved": True, "final-savepoint": None, "state-path": None, **end}
    queries = [{"name": "a", "batches": 2}, {"name": "b", "batches": 1}]
    return {**job.overview(), "vertices": vertices, "queries": queries, "ended-by-itself": reported}


@pytest.mark.parametrize("adopted_before", [False, True])
def test_the_final_savepoint_of_a_run_that_ended_by_itself_is_known_as_such(engine, cluster, poll, adopted_before):
    job = engine.job()
    poll()
    job.add(1, is_savepoint=True, path="file:/sp/end")
    if adopted_before:
        engine.instead[f"/jobs/{job.id}"] = ended_by_itself(job, **{"is-saved": False})  # the job still runs
        poll()
        assert (Savepoint.objects.get().origin, Run.objects.get().outcome) == (SavepointOrigin.ADOPTED, {})
    job.state, job.ended = "FINISHED", job.started + 9000
    end = {"final-savepoint": "file:/sp/end", "state-path": "file:/sp/end"}
    engine.instead[f"/jobs/{job.id}"] = ended_by_itself(job, **end)

    poll()

    assert Run.objects.get().outcome == {
        "saved": True,
        "savepoint": "file:/sp/end",
        "state": "file:/sp/end",
        "rows": 100,
        "batches": 3,
    }
    assert Savepoint.objects.get().origin == SavepointOrigin.FINAL


def test_a_stopped_run_has_no_outcome(engine, cluster, poll):
    job = engine.job(state="FINISHED", ended=START_MS + 9000)
    engine.instead[f"/jobs/{job.id}"] = {**ended_by_itself(job), "ended-by-itself": None}
    poll()
    assert Run.objects.get().outcome == {}


def test_a_run_that_waits_to_start_shows_why_until_it_starts(engine, cluster, poll):
    job = engine.job(state="CREATED")
    wait = {"for": "memory", "asked": 2000, "free": 1000, "limit": 3000, "position": 3, "length": 7}
    engine.instead[f"/jobs/{job.id}"] = {**job.overview(), "vertices": [], "launch-wait": {**wait, "since": START_MS}}
    poll()
    assert Run.objects.get().launch_wait == {**wait, "since": START.isoformat()}

    engine.instead[f"/jobs/{job.id}"]["launch-wait"]["position"] = 2
    poll()
    assert Run.objects.get().launch_wait["position"] == 2

    job.state = "RUNNING"
    engine.instead[f"/jobs/{job.id}"] = {**job.overview(), "vertices": [], "launch-wait": None}
    poll()
    assert (Run.objects.get().state, Run.objects.get().launch_wait) == ("RUNNING", {})


def test_a_run_whose_environment_is_being_prepared_shows_its_progress(engine, cluster, poll):
    job = engine.job(state="CREATED")
    wait = {"for": "environment", "kind": "requirements", "step": "installing", "output": None, "failure": None}
    engine.instead[f"/jobs/{job.id}"] = {**job.overview(), "vertices": [], "launch-wait": {**wait, "since": START_MS}}
    poll()
    known = {"for": "environment", "kind": "requirements", "step": "installing", "since": START.isoformat()}
    assert Run.objects.get().launch_wait == known

    engine.instead[f"/jobs/{job.id}"]["launch-wait"] |= {"output": "Collecting pandas", "failure": "pip: refused"}
    poll()
    assert Run.objects.get().launch_wait == known | {"output": "Collecting pandas", "failure": "pip: refused"}


def test_a_run_that_starts_stops_waiting_even_if_its_details_are_unreadable(engine, cluster, poll):
    job = engine.job(state="CREATED")
    wait = {"for": "turn", "asked": 2000, "free": None, "limit": None, "position": 1, "length": 1}
    engine.instead[f"/jobs/{job.id}"] = {**job.overview(), "vertices": [], "launch-wait": {**wait, "since": START_MS}}
    poll()
    assert Run.objects.get().launch_wait["for"] == "turn"

    job.state = "RUNNING"
    engine.instead[f"/jobs/{job.id}"] = "no answer"
    poll()

    assert Run.objects.get().launch_wait == {}


def test_a_savepoint_taken_outside_waymark_is_adopted_once(engine, cluster, poll):
    job = engine.job()
    job.add(1, is_savepoint=True, path="file:/sp/savepoint-9")
    poll()
    poll()
    savepoint = Savepoint.objects.get()
    assert (savepoint.origin, savepoint.state, savepoint.path) == (
        SavepointOrigin.ADOPTED,
        State.COMPLETED,
        "file:/sp/savepoint-9",
    )
    assert (savepoint.checkpoint.checkpoint_id, savepoint.size, savepoint.run.engine_job_id) == (1, 40000, job.id)


@pytest.mark.parametrize("path", ["file:/sp/savepoint-9", "file:///sp/savepoint-9"])
def test_adoption_waits_for_waymarks_savepoint_and_does_not_store_it_again(engine, cluster, poll, path):
    job = engine.job()
    poll()
    run = Run.objects.get()
    own = Savepoint.objects.create(
        job=run.job, run=run, origin=SavepointOrigin.MANUAL, state=State.IN_PROGRESS, requested_at=poll.clock
    )
    job.add(1, is_savepoint=True, path="file:/sp/savepoint-9")
    poll()
    assert Savepoint.objects.count() == 1
    Savepoint.objects.filter(pk=own.pk).update(state=State.COMPLETED, path=path)
    poll()
    assert Savepoint.objects.count() == 1


def test_a_savepoint_left_by_a_failed_request_is_adopted(engine, cluster, poll):
    job = engine.job()
    poll()
    run = Run.objects.get()
    Savepoint.objects.create(
        job=run.job, run=run, origin=SavepointOrigin.MANUAL, state=State.FAILED, requested_at=poll.clock
    )
    job.add(1, is_savepoint=True, path="file:/sp/savepoint-9")
    poll()
    assert Savepoint.objects.filter(origin=SavepointOrigin.ADOPTED).count() == 1


def test_a_run_is_read_before_its_history_can_roll_over(engine, cluster, poll):
    job = engine.job(interval=600)
    poll()
    cluster.refresh_from_db()
    assert cluster.next_poll_at - poll.clock <= timedelta(seconds=3)
    engine.asked.clear()
    poll(2.5)
    assert f"/jobs/{job.id}/checkpoints" in engine.asked


@pytest.mark.parametrize("looks", [1, 4])
def test_a_run_that_ended_again_between_two_polls_has_the_later_end(engine, cluster, poll, looks):
    job = engine.job()
    poll()
    job.state, job.ended = "FAILED", job.started + 9_000
    for _ in range(looks):
        poll()
    assert Run.objects.get().final_read_done == (looks > 1)
    job.ended = job.moved = job.started + 30_000
    poll()
    run = Run.objects.get()
    assert moves(run) == [("", "RUNNING"), ("RUNNING", "FAILED"), ("FAILED", "FAILED")]
    assert run.ended_at == datetime.fromtimestamp(job.ended / 1000, UTC)
    assert run.end_seen_at == poll.clock


def test_a_job_of_another_name_under_the_same_id_is_another_job(engine, cluster, poll):
    """The new job proves nothing about the first one, which is lost."""
    job = engine.job(name="orders")
    job.add(1)
    poll()
    engine.jobs.clear()
    engine.job(id=job.id, name="flights", started=job.started + 9000)
    engine.jobs[0].add(2, status="FAILED", triggered=job.started + 9500)
    poll()

    orders, flights = (Run.objects.get(job__name=name) for name in ("orders", "flights"))
    assert (orders.state, orders.superseded, flights.state) == ("LOST", True, "RUNNING")
    assert [each.status for each in orders.checkpoints.all()] == ["COMPLETED"]
    assert [each.status for each in flights.checkpoints.all()] == ["FAILED"]
