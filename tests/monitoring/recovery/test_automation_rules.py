"""A job's automation settings: pauses, circuit breaker, age of the snapshot, empty start, external management."""

from datetime import timedelta

import pytest
from django.db import IntegrityError

from monitoring import pauses
from monitoring.models import AuditEntry, Job, RestartAttempt, RestartDecision, RestartTrigger, RunState, Savepoint
from monitoring.pauses import BadPause
from monitoring.reasons.automation import AutomationReason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.reasons.report import CycleReport
from monitoring.recovery.breaker import close_breaker
from monitoring.recovery.cycle import advance
from monitoring.recovery.evidence import facts_of
from monitoring.recovery.manual import RestartRefused, restart_from
from monitoring.savepoints.schedule import request_due


def restarted(rows, job, minutes_ago, lived_s=0, checkpoints=0):
    run = rows.run(
        job,
        RunState.FAILED,
        started_at=rows.ago(minutes_ago * 60),
        ended_at=rows.ago(minutes_ago * 60 - lived_s),
        final_read_done=True,
    )
    for number in range(1, checkpoints + 1):
        rows.checkpoint(run, number)
    return RestartAttempt.objects.create(
        job=job,
        epoch=job.restart_attempts.count() + 1,
        trigger=RestartTrigger.AUTOMATIC,
        state="succeeded",
        reason="because",
        engine_job_id=run.engine_job_id,
        new_run=run,
        created_at=rows.ago(minutes_ago * 60),
        deadline_at=rows.now,
    )


@pytest.mark.parametrize("budget", ["max_restarts_per_hour", "max_restarts_per_day"])
def test_a_budget_of_zero_is_refused_by_the_database(job, budget):
    with pytest.raises(IntegrityError, match="a_restart_budget_of_at_least_one"):
        Job.objects.filter(pk=job.pk).update(**{budget: 0})


class TestPauses:
    @pytest.fixture(params=["everything", "its cluster"])
    def cluster(self, request, job):
        return job.cluster if request.param == "its cluster" else None

    def test_no_job_is_restarted_during_a_pause(self, job, job_manager, cluster, now):
        pause = pauses.pause(cluster, "upgrade of the disks", now + timedelta(hours=1), "ada", now)
        (left,) = advance(now).left
        assert left.args["reason"].args["reason"] == "upgrade of the disks"
        assert job_manager.count("run") == 0
        assert pauses.end(pause, "bob", now)
        assert not pauses.end(pause, "bob", now)
        advance(now + timedelta(seconds=2))
        assert job_manager.count("run") == 1

    def test_a_pause_ends_by_itself(self, job, job_manager, cluster, now):
        pauses.pause(cluster, "upgrade", now + timedelta(hours=1), "ada", now)
        advance(now + timedelta(minutes=59))
        assert job_manager.count("run") == 0
        advance(now + timedelta(hours=1))
        assert job_manager.count("run") == 1

    def test_savepoints_on_a_schedule_wait_too(self, rows, cluster, job, now):
        rows.run(job)
        Job.objects.filter(pk=job.pk).update(savepoint_interval_s=600, next_savepoint_at=now)
        pauses.pause(cluster, "upgrade", None, "ada", now)
        assert request_due(now)["work.savepoints-deferred"] == 1
        assert "is paused by ada: upgrade" in Savepoint.objects.get().failure

    def test_a_pause_of_a_single_job_ends_by_itself(self, job, job_manager, now):
        until = now + timedelta(hours=1)
        Job.objects.filter(pk=job.pk).update(
            automation_paused=True, automation_paused_until=until, automation_note="disks"
        )
        (left,) = advance(until - timedelta(seconds=1)).left
        assert left.args["reason"] == AutomationReason.PAUSED_UNTIL(until=until)
        assert job_manager.count("run") == 0
        ended, decided, *_ = advance(until).done
        assert ended == Why.PAUSE_OVER(job="flights")
        assert decided.code == Why.RESTART_DECIDED
        job.refresh_from_db()
        assert (job.automation_paused, job.automation_paused_until, job.automation_note) == (False, None, "")
        assert AuditEntry.objects.filter(action="automation.resume", target="job flights").count() == 1

    def test_another_cluster_is_not_held(self, rows, job, job_manager, now):
        pauses.pause(rows.cluster(), "upgrade", None, "ada", now)
        advance(now)
        assert job_manager.count("run") == 1

    def test_a_pause_that_begins_during_a_restart_stops_it_before_the_launch(self, job, job_manager, cluster, now):
        job_manager.loses_request_of = {"validate"}
        advance(now)
        pauses.pause(cluster, "upgrade", None, "ada", now)
        job_manager.loses_request_of = set()
        advance(now + timedelta(seconds=2))
        assert RestartAttempt.objects.get().error_value.code is Why.AUTOMATION_PAUSED
        assert job_manager.count("run") == 0

    @pytest.mark.parametrize(
        ("reason", "minutes", "field", "allowed"),
        [
            (" ", 5, "reason", AutomationReason.WHY_NEEDED()),
            ("x" * 501, 5, "reason", AutomationReason.WHY_TOO_LONG(most=500, count=501)),
            ("upgrade", 0, "until", AutomationReason.LATER_END_NEEDED()),
        ],
    )
    def test_an_invalid_pause_is_refused(self, now, reason, minutes, field, allowed, db):
        with pytest.raises(BadPause) as problem:
            pauses.pause(None, reason, now + timedelta(minutes=minutes), "ada", now)
        assert (problem.value.field, problem.value.allowed) == (field, allowed)


class TestBreaker:
    def test_the_circuit_breaker_remains_open_until_a_person_closes_it(self, rows, job, job_manager, poll, now):
        job_manager.starts_as = "FAILED"
        moment = now
        for _ in range(30):
            poll(job, moment)
            advance(moment)
            moment += timedelta(seconds=30)
        assert RestartAttempt.objects.count() == 6
        job.refresh_from_db()
        assert job.breaker_opened_at is not None

        later = moment + timedelta(days=2)
        poll(job, later)
        advance(later)
        assert RestartAttempt.objects.count() == 6

        job_manager.starts_as = "RUNNING"
        assert close_breaker(job, "the disk was full", "ada", later)
        assert not close_breaker(job, "again", "bob", later)
        advance(later + timedelta(seconds=2))
        assert RestartAttempt.objects.count() == 7
        assert job_manager.alive()

    def test_a_run_that_recovered_refills_the_hour(self, rows, job, now):
        restarted(rows, job, 50)
        restarted(rows, job, 40, lived_s=601, checkpoints=2)
        restarted(rows, job, 20, lived_s=60, checkpoints=5)
        facts = facts_of(job, now)
        assert len(facts.automatic_restarts) == 1
        assert facts.of_the_day == 3

    @pytest.mark.parametrize(("lived_s", "checkpoints"), [(599, 5), (3000, 1)])
    def test_a_short_life_or_one_without_checkpoints_refills_nothing(self, rows, job, now, lived_s, checkpoints):
        restarted(rows, job, 55, lived_s=lived_s, checkpoints=checkpoints)
        assert len(facts_of(job, now).automatic_restarts) == 1


class TestStates:
    def test_a_state_that_is_too_old_is_left_to_a_person(self, rows, job, job_manager, now):
        Job.objects.filter(pk=job.pk).update(oldest_state_s=50)  # the newest snapshot is some seconds older
        advance(now)
        attempt = RestartAttempt.objects.get()
        assert attempt.state == "failed"
        assert "old when the job failed, and the job allows at most 50 s" in attempt.error
        assert job_manager.count("run") == 0

    def test_a_young_enough_state_is_restored(self, job, job_manager, now):
        Job.objects.filter(pk=job.pk).update(oldest_state_s=3600)
        advance(now)
        assert job_manager.ran[0]["savepointPath"] == "file:/chk/7"

    def test_a_job_is_never_started_without_state_unless_it_allows_it(self, job, job_manager, now):
        job.current_run.checkpoints.all().delete()
        advance(now)
        assert RestartAttempt.objects.get().state == "failed"
        assert job_manager.count("run") == 0

    def test_a_job_that_allows_it_is_started_without_state_if_none_remains(self, job, job_manager, go_on, now):
        job_manager.invalid_paths = {"file:/chk/7": "_metadata is missing"}
        Job.objects.filter(pk=job.pk).update(allow_empty_start=True)
        attempt = go_on(job, now)
        assert (attempt.state, attempt.start_empty) == ("succeeded", True)
        assert "savepointPath" not in job_manager.ran[0]
        assert attempt.rejected == [{"path": "file:/chk/7", "why": "_metadata is missing"}]

    def test_a_state_that_is_too_old_is_no_reason_to_start_it_empty(self, job, job_manager, now):
        Job.objects.filter(pk=job.pk).update(allow_empty_start=True, oldest_state_s=50)
        advance(now)
        attempt = RestartAttempt.objects.get()
        assert (attempt.state, attempt.start_empty) == ("failed", False)
        assert "old when the job failed, and the job allows at most 50 s" in attempt.error
        assert job_manager.count("run") == 0

    def test_a_good_state_is_restored_all_the_same(self, job, job_manager, now):
        Job.objects.filter(pk=job.pk).update(allow_empty_start=True)
        advance(now)
        assert job_manager.ran[0]["savepointPath"] == "file:/chk/7"


class TestManagedElsewhere:
    @pytest.fixture
    def job(self, job):
        job.managed_elsewhere = "the Kubernetes operator"
        job.savepoint_interval_s, job.next_savepoint_at = 600, job.created_at
        job.save()
        return job

    def test_the_job_is_only_watched(self, rows, job, job_manager, now):
        assert advance(now) == CycleReport()
        rows.run(job)
        assert not request_due(now)

    def test_a_restart_by_hand_is_refused_with_who_does_it(self, job, now):
        with pytest.raises(RestartRefused) as refused:
            restart_from(job, "file:/chk/7", "ada", now)
        assert refused.value.reason == Why.BAD_MANAGED_ELSEWHERE(
            value="'the Kubernetes operator'", allowed=Why.MANAGED_ELSEWHERE()
        )


class TestDecisions:
    def test_each_decision_is_a_row_with_its_facts(self, job, job_manager, now):
        job.cluster.unreachable_since = now
        job.cluster.save()
        advance(now)
        advance(now + timedelta(seconds=2))
        job.cluster.unreachable_since = None
        job.cluster.save()
        advance(now + timedelta(seconds=4))

        found = list(RestartDecision.objects.filter(job=job).order_by("at", "id"))
        assert [(each.verdict, each.reason) for each in found][:2] == [
            ("leave", "the cluster does not answer"),
            ("restart", found[1].reason),
        ]
        assert found[0].facts["cluster_reachable"] is False
        assert found[1].facts["automatic_restarts"] == []
