"""A job of the Flink operator is restarted, upgraded and saved through its resource: once, despite kills."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from monitoring.kubernetes.job_program import ProgramChange, program_in
from monitoring.models import (
    AttemptState,
    Cluster,
    DiscoverySource,
    FoundResource,
    Incident,
    Job,
    RestartAttempt,
    RunState,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery import moving
from monitoring.recovery.cycle import advance
from monitoring.recovery.manual import RestartRefused, change_and_restart, change_through_operator, restart_from
from monitoring.recovery.moving import CLAIM
from monitoring.recovery.run_again import run_again
from monitoring.recovery.stages import through_operator
from monitoring.recovery.stages.await_running import AwaitRunning
from monitoring.recovery.stages.check_state import CheckState
from monitoring.recovery.stages.through_operator import NoProgram, Redeploy, SaveJob
from monitoring.savepoints import cycle as savepoints
from monitoring.savepoints.request import request_savepoint
from monitoring.savepoints.retention_actions import dispose
from tests.monitoring.discovery.operated_job import make_job
from tests.monitoring.discovery.played_kubernetes import FLINK, SESSION_JOB, SNAPSHOT
from tests.monitoring.discovery.played_operator import PlayedOperator

Drive = Callable[..., RestartAttempt]


@pytest.fixture
def operator(kubernetes, job_manager) -> PlayedOperator:
    return PlayedOperator(kubernetes, job_manager)


@pytest.fixture
def job(operator, job_manager, db) -> Job:
    """Return a job that the operator runs, with one checkpoint and one savepoint. Waymark has found its resource."""
    return make_job(operator, operator.create("orders"), "orders")


@pytest.fixture
def drive(operator, poll) -> Drive:
    """Return a function that runs Waymark and the operator in turns, until the newest attempt has ended."""

    def run(job: Job, start=None, turns: int = 60) -> RestartAttempt:
        moment = start or timezone.now()
        for _ in range(turns):
            poll(job, moment)
            savepoints.advance(moment)
            advance(moment)
            operator.reconcile()
            attempt = RestartAttempt.objects.filter(job=job).order_by("-epoch").first()
            if attempt is not None and not AttemptState(attempt.state).open:
                return attempt
            moment += timedelta(seconds=4)
        raise AssertionError([(step.name, step.text) for step in attempt.steps.all()] if attempt else "undecided")

    return run


def restart(job: Job, state: Savepoint | str | None = "file:/sp/1", *, stop_first: bool = False) -> RestartAttempt:
    return restart_from(job, state, "ann", timezone.now(), stop_first=stop_first)


def spec(operator: PlayedOperator) -> dict:
    return operator.kubernetes.objects[FLINK, "prod", "orders"]["spec"]


def test_a_restart_from_a_savepoint_is_one_redeployment_by_the_operator(job, operator, drive):
    restart(job)
    attempt = drive(job)
    assert (attempt.state, operator.deployments) == ("succeeded", ["file:/sp/1"])
    assert attempt.new_run.engine_job_id == operator.jobs.alive()[0].id != attempt.old_run.engine_job_id
    assert spec(operator)["job"]["initialSavepointPath"] == "file:/sp/1"
    assert {"run", "cancel", "stop"}.isdisjoint(operator.jobs.calls), "nothing happens behind the operator's back"
    assert job.launch is None


def test_a_session_job_is_restarted_through_its_own_resource(operator, drive, db):
    operator.kubernetes.put("session", spec={})
    job = make_job(operator, operator.create("orders", kind=SESSION_JOB), "session")
    restart(job)
    attempt = drive(job)
    assert (attempt.state, operator.deployments) == ("succeeded", ["file:/sp/1"])
    assert attempt.resource["kind"] == SESSION_JOB
    changed = operator.kubernetes.objects[SESSION_JOB, "prod", "orders"]["spec"]["job"]
    assert changed["initialSavepointPath"] == "file:/sp/1"
    assert operator.kubernetes.objects[FLINK, "prod", "session"]["spec"] == {}


@pytest.mark.parametrize("mode", ["savepoint", "last-state"])
def test_a_restart_with_the_latest_state_changes_the_restart_nonce(job, operator, drive, mode):
    operator.create("orders", mode, job.current_run.engine_job_id)
    restart(job, None, stop_first=True)
    attempt = drive(job)
    assert attempt.state == "succeeded"
    assert operator.deployments == [f"file:/upgrade/{attempt.old_run.engine_job_id[:8]}"]
    assert "savepointRedeployNonce" not in spec(operator)["job"]
    assert operator.snapshots == 0


def test_a_job_that_would_lose_its_state_is_not_restarted(job, operator, drive):
    operator.create("orders", "stateless", job.current_run.engine_job_id)
    restart(job, None, stop_first=True)
    attempt = drive(job)
    assert (attempt.state, operator.deployments) == ("canceled", [])
    assert attempt.error_value.args["why"].code is DiscoveryReason.UPGRADE_WITHOUT_STATE
    FoundResource.objects.update(state={"job_id": job.current_run.engine_job_id, "upgrade_mode": "stateless"})
    with pytest.raises(RestartRefused) as refused:
        restart(job, None, stop_first=True)
    assert refused.value.reason.args["allowed"].code is Why.UPGRADE_MODE_NEEDED


def test_the_present_state_is_saved_through_the_operator_before_a_restart(job, operator, drive):
    restart(job, job.savepoints.get(), stop_first=True)
    attempt = drive(job)
    assert (attempt.state, operator.deployments, operator.snapshots) == ("succeeded", ["file:/sp/1"], 1)
    assert attempt.stop_savepoint.path.startswith("file:/savepoints/waymark-")
    assert operator.jobs.count("trigger") == 0


def test_a_job_that_cannot_be_saved_is_not_redeployed(job, operator, drive):
    operator.snapshot_error = "the disk is full"
    restart(job, stop_first=True)
    attempt = drive(job)
    assert (attempt.state, operator.deployments) == ("failed", [])
    assert "the disk is full" in attempt.error


class Killed(BaseException):
    """Raised instead of a SIGKILL: no handler runs and nothing is cleaned up."""


POINTS = [
    *(
        (stage, name, after)
        for stage in (NoProgram, CheckState, SaveJob, Redeploy, AwaitRunning)
        for name in ("plan", "conclude")
        for after in (False, True)
        if (stage, name) != (NoProgram, "conclude")
    ),
    *((moving, name, after) for name in ("call_all", "apply") for after in (False, True)),
    *((through_operator, "write", after) for after in (False, True)),
]


# The stages of other restarts have such tests of their own.
_IN_EVERY_RUN = (SaveJob, Redeploy, through_operator)


@pytest.mark.parametrize(
    "records_early",
    [True, pytest.param(False, marks=pytest.mark.nightly)],
    ids=["recorded early", "recorded late"],
)
@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        pytest.param(
            *each,
            id=f"{each[0].__name__.rpartition('.')[2]}.{each[1]} {'after' if each[2] else 'before'}",
            marks=() if each[0] in _IN_EVERY_RUN else pytest.mark.nightly,
        )
        for each in POINTS
    ],
)
def test_a_worker_killed_at_any_point_causes_one_redeployment(
    job, operator, drive, monkeypatch, owner, name, after, records_early
):
    operator.records_early = records_early
    restart(job, stop_first=True)
    start = timezone.now()
    real = getattr(owner, name)

    def die(*args, **kwargs):
        if after:
            real(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(Killed):
            drive(job, start)
    attempt = drive(job, start + CLAIM)
    assert (attempt.state, operator.deployments) == ("succeeded", ["file:/sp/1"])
    assert RestartAttempt.objects.count() == 1
    assert (len(operator.jobs.alive()), operator.jobs.most_alive) == (1, 1)


@pytest.mark.parametrize("part", ["request", "answer"])
@pytest.mark.parametrize("verb", ["get", "patch"])
def test_a_lost_request_or_answer_causes_one_redeployment(job, operator, drive, verb, part):
    restart(job)
    operator.kubernetes.lost = {(verb, part)}
    with contextlib.suppress(AssertionError):
        drive(job, turns=3)
    operator.kubernetes.lost = set()
    assert drive(job).state == "succeeded"
    assert operator.deployments == ["file:/sp/1"]


def test_a_worker_that_was_stalled_does_not_redeploy_what_a_person_has_redeployed_since(job, operator, drive):
    restart(job)
    operator.kubernetes.lost = {("patch", "answer")}
    with pytest.raises(AssertionError):
        drive(job, turns=2)
    operator.reconcile()
    wanted = spec(operator)
    wanted["job"] |= {"savepointRedeployNonce": 1, "initialSavepointPath": "file:/sp/of-a-person"}
    operator.kubernetes.put("orders", spec=wanted)
    operator.kubernetes.lost = set()
    operator.reconcile()
    operator.reconcile()
    with pytest.raises(AssertionError):
        drive(job, turns=10)
    assert operator.deployments == ["file:/sp/1", "file:/sp/of-a-person"]


def test_a_job_that_somebody_else_has_restarted_is_left_alone(job, operator, drive):
    restart(job)
    operator.create("orders", job_id="cd" * 16)
    attempt = drive(job)
    assert (attempt.state, operator.deployments) == ("canceled", [])
    assert attempt.error_value.args["why"].code is DiscoveryReason.OTHER_JOB


def test_a_resource_that_was_created_again_is_left_alone(job, operator, drive):
    restart(job)
    operator.kubernetes.put("orders", uid="another")
    attempt = drive(job)
    assert (attempt.state, attempt.error_value.args["why"].code) == ("canceled", DiscoveryReason.CREATED_AGAIN)


def test_an_account_without_the_right_is_named_and_nothing_happens(job, operator, drive):
    operator.kubernetes.forbidden = {("patch", FLINK)}
    restart(job)
    attempt = drive(job)
    assert (attempt.state, operator.deployments) == ("failed", [])
    assert "may not patch flinkdeployments.flink.apache.org in the namespace prod" in attempt.error


def test_the_restart_waits_while_the_operator_cannot_deploy(job, operator, drive):
    operator.fails = ["quota exceeded", "quota exceeded"]
    restart(job)
    with pytest.raises(AssertionError, match="quota exceeded"):
        drive(job, turns=4)
    assert drive(job).state == "succeeded"
    assert operator.deployments == ["file:/sp/1"]


def test_an_operator_that_does_not_deploy_for_half_an_hour_is_reported(job, operator, drive):
    restart(job)
    start, operator.fails = timezone.now(), ["quota exceeded"] * 100
    with pytest.raises(AssertionError):
        drive(job, start, turns=4)
    with pytest.raises(AssertionError):
        drive(job, start + timedelta(minutes=29), turns=2)
    attempt = drive(job, start + timedelta(minutes=31))
    assert (attempt.state, operator.deployments) == ("failed", [])
    assert attempt.error_value.args["last"].code is Why.OPERATOR_SAYS


def die(job: Job, operator: PlayedOperator) -> None:
    """Let the job fail, as Flink and the operator report it."""
    run = job.current_run
    operator.jobs.jobs[run.engine_job_id].state = "FAILED"
    operator.reconcile()
    moment = timezone.now() - timedelta(seconds=30)
    run.state, run.ended_at, run.end_seen_at, run.final_read_done = RunState.FAILED, moment, moment, True
    run.save()
    Job.objects.filter(pk=job.pk).update(auto_restart=True)


def test_a_dead_job_is_redeployed_from_its_newest_snapshot(job, operator, drive):
    die(job, operator)
    attempt = drive(job)
    assert (attempt.state, attempt.trigger) == ("succeeded", "automatic")
    assert operator.deployments == ["file:/chk/7"]


def test_a_dead_job_whose_cluster_does_not_answer_is_redeployed(job, operator, drive):
    die(job, operator)
    Cluster.objects.update(unreachable_since=timezone.now() - timedelta(minutes=5))
    operator.jobs.loses_request_of = {"overview"}
    with pytest.raises(AssertionError):
        drive(job, turns=4)
    assert operator.deployments == ["file:/chk/7"]
    operator.jobs.loses_request_of = set()
    assert drive(job).state == "succeeded"


def test_a_snapshot_that_is_gone_is_replaced_by_the_next_one(job, operator, drive):
    operator.loses = {"file:/chk/7"}
    die(job, operator)
    attempt = drive(job)
    assert (attempt.state, operator.deployments) == ("succeeded", ["file:/chk/7", "file:/sp/1"])
    assert [each["path"] for each in attempt.rejected] == ["file:/chk/7"]


def test_a_dead_job_that_the_operator_restarts_itself_is_left_alone(job, operator, drive):
    die(job, operator)
    operator.jobs.add("cd" * 16, "no poll has seen it yet")
    operator.create("orders", job_id="cd" * 16)
    assert drive(job).state == "canceled"
    assert operator.deployments == []


def test_without_permission_the_job_is_not_restarted(job, operator, drive):
    DiscoverySource.objects.update(may_change_resources=False)
    with pytest.raises(RestartRefused) as refused:
        restart(job)
    assert refused.value.reason.args["allowed"].code is Why.OPERATED
    die(job, operator)
    with pytest.raises(AssertionError, match="undecided"):
        drive(job, turns=5)
    assert operator.deployments == []


def test_a_job_of_the_operator_is_not_started_in_another_way(job, operator):
    launch = {"kind": "waymark", "jar_id": "program.py"}
    Job.objects.update(launch=launch)
    job.refresh_from_db()
    for start in (
        lambda: change_and_restart(job, launch, Why.RESCALE(was=1, now=2), None, "ann", timezone.now()),
        lambda: run_again(job, "ann", timezone.now()),
    ):
        with pytest.raises(RestartRefused) as refused:
            start()
        assert refused.value.reason.args["allowed"].code is Why.ONLY_RESTARTED


def test_an_attempt_ends_if_its_source_is_removed(job, drive):
    restart(job)
    DiscoverySource.objects.all().delete()
    attempt = drive(job)
    assert (attempt.state, attempt.error_value.code) == ("failed", Why.SOURCE_GONE)


def save(job: Job) -> Savepoint:
    return request_savepoint(job, SavepointOrigin.MANUAL, "ann", timezone.now())


def turn(operator: PlayedOperator, seconds: float) -> None:
    savepoints.advance(timezone.now() + timedelta(seconds=seconds))
    operator.reconcile()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("part", ["request", "answer"])
def test_a_savepoint_is_one_resource_although_a_message_is_lost(transactional_db, job, operator, watch, part):
    saved = save(job)
    operator.kubernetes.lost = {("create", part)}
    turn(operator, 1)
    operator.kubernetes.lost = set()
    for seconds in range(100, 140, 4):
        turn(operator, seconds)
    saved.refresh_from_db()
    name = f"waymark-{saved.trigger_id}"
    assert (saved.state, saved.path) == (SavepointState.COMPLETED, f"file:/savepoints/{name}")
    assert operator.snapshots == 1
    resource = operator.kubernetes.objects[SNAPSHOT, "prod", name]
    assert resource["spec"]["savepoint"] == {"disposeOnDelete": False}
    watch()
    assert Savepoint.objects.filter(path=saved.path).count() == 1


def test_retention_deletes_the_resource_with_the_files(job, operator):
    saved = save(job)
    for seconds in (1, 100):
        turn(operator, seconds)
        operator.reconcile()
    later = timezone.now() + timedelta(minutes=5)
    values = {"state": "completed", "path": "file:/sp/newer", "requested_at": later}
    Savepoint.objects.create(job=job, run=job.current_run, origin="manual", **values)
    dispose(Savepoint.objects.get(pk=saved.pk), "", "ann", later)
    for seconds in (400, 500):
        turn(operator, seconds)
    saved.refresh_from_db()
    assert (saved.state, operator.jobs.disposed) == (SavepointState.DISPOSED, [saved.path])
    assert operator.kubernetes.names(SNAPSHOT) == set()


@pytest.mark.django_db(transaction=True)
def test_a_savepoint_that_the_watch_sees_first_is_the_same(transactional_db, job, operator, watch):
    saved = save(job)
    turn(operator, 1)
    operator.reconcile()
    watch()
    turn(operator, 100)
    saved.refresh_from_db()
    assert (saved.state, Savepoint.objects.count()) == (SavepointState.COMPLETED, 2)


def test_without_permission_savepoints_are_requested_from_flink(job, operator):
    DiscoverySource.objects.update(may_change_resources=False)
    save(job)
    turn(operator, 1)
    assert (operator.jobs.count("trigger"), operator.snapshots) == (1, 0)


# --- upgrades --------------------------------------------------------------------------------------------------------


def upgrade(job: Job, operator: PlayedOperator, state: Savepoint | None = None, **fields: object) -> RestartAttempt:
    """Request the upgrade of the job to these values, with a return if the new job fails."""
    was = program_in(operator.kubernetes.objects[FLINK, "prod", "orders"])
    change = ProgramChange(was, {**was, **fields})
    what = Why.RESCALE(was=1, now=2)
    return change_through_operator(job, change, what, state, "ann", timezone.now(), goes_back=True)


@pytest.mark.parametrize("from_savepoint", [True, False])
def test_an_upgrade_changes_the_program_and_redeploys_the_job_in_one_request(job, operator, drive, from_savepoint):
    before = spec(operator)["job"]
    savepoint = job.savepoints.get() if from_savepoint else None
    upgrade(job, operator, savepoint, image="orders:2", program_args=["--topic", "b"], parallelism=4)
    attempt = drive(job)
    assert attempt.state == "succeeded"
    assert operator.deployments == ["file:/sp/1" if savepoint else f"file:/upgrade/{attempt.old_run.engine_job_id[:8]}"]
    now = spec(operator)
    assert (now["image"], now["job"]["args"], now["job"]["parallelism"]) == ("orders:2", ["--topic", "b"], 4)
    assert (now["job"]["jarURI"], now["job"]["upgradeMode"]) == (before["jarURI"], before["upgradeMode"])
    assert operator.kubernetes.requests["patch", FLINK] == 1
    assert job.launch is None


def test_an_emptied_field_is_removed_from_the_resource(job, operator, drive):
    upgrade(job, operator, program_args=[], parallelism=None)
    assert drive(job).state == "succeeded"
    assert {"args", "parallelism"}.isdisjoint(spec(operator)["job"])


@pytest.mark.parametrize(("lost", "part"), [("patch", "request"), ("patch", "answer")])
def test_a_lost_request_or_answer_of_an_upgrade_causes_one_redeployment(job, operator, drive, lost, part):
    upgrade(job, operator, image="orders:2")
    operator.kubernetes.lost = {(lost, part)}
    with contextlib.suppress(AssertionError):
        drive(job, turns=3)
    operator.kubernetes.lost = set()
    assert drive(job).state == "succeeded"
    assert (len(operator.deployments), spec(operator)["image"]) == (1, "orders:2")


def test_a_field_that_somebody_else_has_changed_since_is_not_overwritten(job, operator, drive):
    upgrade(job, operator, image="orders:2", parallelism=4)
    operator.kubernetes.put("orders", spec=spec(operator) | {"image": "orders:hotfix"})
    attempt = drive(job)
    assert (attempt.state, operator.deployments) == ("canceled", [])
    why = attempt.error_value.args["why"]
    assert (why.code, why.args["fields"]) == (DiscoveryReason.PROGRAM_CHANGED, ("image",))
    assert spec(operator)["image"] == "orders:hotfix"
    assert "parallelism" in spec(operator)["job"]
    assert spec(operator)["job"]["parallelism"] != 4


@pytest.mark.parametrize("from_savepoint", [True, False])
def test_a_changed_program_that_fails_is_changed_back_and_started_from_the_same_snapshot(
    job, operator, drive, from_savepoint
):
    operator.broken_images = {"orders:2"}
    before = {key: value for key, value in spec(operator)["job"].items() if "avepoint" not in key}
    failed = upgrade(job, operator, job.savepoints.get() if from_savepoint else None, image="orders:2", parallelism=4)
    drive(job)
    back = drive(job)
    failed.refresh_from_db()
    assert (failed.state, back.state, back.back_from) == ("failed", "succeeded", failed)
    assert (spec(operator)["image"], len(operator.deployments)) == ("orders:1", 2)
    assert {key: value for key, value in spec(operator)["job"].items() if "avepoint" not in key} == before
    if from_savepoint:
        assert operator.deployments == ["file:/sp/1", "file:/sp/1"]
    assert len(operator.jobs.alive()) == 1


@pytest.mark.parametrize("from_savepoint", [True, False])
def test_a_changed_program_that_cannot_be_deployed_in_time_is_changed_back(job, operator, drive, from_savepoint):
    operator.missing_images = {"orders:2"}
    failed = upgrade(job, operator, job.savepoints.get() if from_savepoint else None, image="orders:2")
    start = timezone.now()
    with pytest.raises(AssertionError, match="ImagePullBackOff"):
        drive(job, start, turns=8)
    back = drive(job, start + through_operator.CHANGED_WITHIN + timedelta(minutes=1))
    failed.refresh_from_db()
    assert (failed.state, failed.error_value.code, back.back_from) == ("failed", Why.OUT_OF_TIME, failed)
    assert (back.state, spec(operator)["image"], len(operator.deployments)) == ("succeeded", "orders:1", 1)
    assert len(operator.jobs.alive()) == 1


def test_an_operator_that_rolls_back_ends_the_upgrade_and_its_job_goes_on(job, operator, drive):
    operator.broken_images, operator.rolls_back = {"orders:2"}, True
    upgrade(job, operator, job.savepoints.get(), image="orders:2")
    attempt = drive(job)
    assert (attempt.state, attempt.error_value.code) == ("failed", Why.ROLLED_BACK)
    assert RestartAttempt.objects.count() == 1
    assert len(operator.jobs.alive()) == 1
    assert not Incident.objects.exists()


def test_an_upgrade_without_a_change_or_without_an_operator_is_refused(job, operator):
    with pytest.raises(RestartRefused) as refused:
        upgrade(job, operator)
    assert refused.value.reason.args["allowed"].code is Why.CHANGE_NEEDED
    operator.kubernetes.delete("orders")
    job.cluster.found_resources.update(gone_at=timezone.now())
    with pytest.raises(RestartRefused) as refused:
        change_through_operator(job, ProgramChange({}, {"image": "b"}), Why.START_ANEW(), None, "ann", timezone.now())
    assert refused.value.reason.args["allowed"].code is Why.OPERATOR_NEEDED
