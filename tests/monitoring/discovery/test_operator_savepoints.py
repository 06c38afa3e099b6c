"""Savepoints of the Flink operator are listed with those of the job, and jobs of its resources are not restarted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from monitoring.kubernetes.job_resources import JobResource, resource_of
from monitoring.models import Cluster, Job, Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.automation import AutomationReason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.recovery.evidence import facts_of
from monitoring.recovery.manual import RestartRefused, require_answer
from monitoring.savepoints.request import SavepointDeferred, request_savepoint
from monitoring.savepoints.retention_actions import NotDisposable, apply_retention, dispose
from tests.monitoring.conftest import Rows
from tests.monitoring.discovery import played_kubernetes as played

pytestmark = pytest.mark.django_db(transaction=True)
JOB_ID = "ab" * 16
STATUS = {"lifecycleState": "STABLE", "jobStatus": {"state": "RUNNING", "jobId": JOB_ID, "jobName": "orders"}}
SPEC = {"jobReference": {"kind": "FlinkDeployment", "name": "orders"}, "savepoint": {}}


def done(path: str) -> dict[str, str]:
    return {
        "state": "COMPLETED",
        "path": path,
        "triggerTimestamp": "2026-11-26T10:00:00Z",
        "resultTimestamp": "garbage",
    }


@pytest.fixture
def job(kubernetes, source, look) -> Job:
    kubernetes.put("orders", status=STATUS)
    look()
    rows = Rows(now=timezone.now())
    job = rows.job(Cluster.objects.get(), name="orders", savepoints_kept=1)
    rows.run(job, engine_job_id=JOB_ID)
    return job


def test_a_savepoint_of_the_operator_is_listed_and_never_deleted_by_waymark(kubernetes, job, watch):
    kubernetes.put("nightly", played.SNAPSHOT, spec=SPEC, status=done("s3://b/savepoint-1"))
    kubernetes.put("pending", played.SNAPSHOT, spec=SPEC, status={"state": "TRIGGER_PENDING"})
    kubernetes.put("chk", played.SNAPSHOT, spec=SPEC | {"checkpoint": {}}, status=done("s3://b/chk-7"))
    watch()
    savepoint = Savepoint.objects.get()
    assert (savepoint.job, savepoint.run, savepoint.path) == (job, job.current_run, "s3://b/savepoint-1")
    assert (savepoint.origin, savepoint.state) == (SavepointOrigin.OPERATOR, SavepointState.COMPLETED)
    now = timezone.now()
    for minutes in (1, 2):
        at = now + timedelta(minutes=minutes)
        values = {"origin": SavepointOrigin.SCHEDULED, "state": SavepointState.COMPLETED, "requested_at": at}
        Savepoint.objects.create(job=job, run=job.current_run, path=f"s3://b/ours-{minutes}", **values)
    assert apply_retention(now + timedelta(days=1)) == 1
    assert Savepoint.objects.get(state=SavepointState.DISPOSING).path == "s3://b/ours-1"
    with pytest.raises(NotDisposable) as refused:
        dispose(savepoint, "", "ann", now)
    assert refused.value.reason == SavepointReason.STAYS(reason=SavepointReason.OF_OPERATOR())
    watch()
    assert Savepoint.objects.filter(origin=SavepointOrigin.OPERATOR).count() == 1, "read again, it is the same"


def test_a_savepoint_that_a_poll_has_found_first_gets_its_origin(kubernetes, job, watch):
    at = timezone.now()
    values = {"origin": SavepointOrigin.ADOPTED, "state": SavepointState.COMPLETED, "requested_at": at}
    Savepoint.objects.create(job=job, run=job.current_run, path="file:/sp/1", **values)
    kubernetes.put("nightly", played.SNAPSHOT, spec=SPEC, status=done("file:///sp/1"))
    watch()
    assert Savepoint.objects.get().origin == SavepointOrigin.OPERATOR


def test_the_savepoint_of_a_deleted_resource_is_not_restored(kubernetes, job, watch):
    kept = SPEC | {"savepoint": {"disposeOnDelete": False}}
    kubernetes.put("a", played.SNAPSHOT, spec=SPEC, status=done("s3://b/1"))
    kubernetes.put("b", played.SNAPSHOT, spec=kept, status=done("s3://b/2"))
    watch()
    kubernetes.delete("a", played.SNAPSHOT)
    kubernetes.delete("b", played.SNAPSHOT)
    watch()
    assert {each.path: each.gone_at is not None for each in Savepoint.objects.all()} == {
        "s3://b/1": True,
        "s3://b/2": False,
    }


def test_a_job_of_the_operator_is_not_started_by_waymark(kubernetes, job, watch):
    row = resource_of(job)
    assert str(JobResource.of(row)) == "FlinkDeployment prod/orders"
    paused = facts_of(job, timezone.now()).paused
    assert paused == AutomationReason.MANAGED_ELSEWHERE(who="FlinkDeployment prod/orders")
    with pytest.raises(RestartRefused):
        require_answer(job, row)
    kubernetes.put("orders", status={"jobStatus": {"jobId": "cd" * 16}})
    watch()
    assert resource_of(job) is None, "the operator runs another job"


def test_a_job_of_the_operator_is_stopped_in_kubernetes(job):
    with pytest.raises(SavepointDeferred) as refused:
        request_savepoint(job, SavepointOrigin.MANUAL, "ann", timezone.now(), stops_job=True)
    assert refused.value.reason == SavepointReason.OPERATOR_STOPS(resource="FlinkDeployment prod/orders")
