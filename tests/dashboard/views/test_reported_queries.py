"""Queries that the agent reports, from the post over the poller to the pages and the API. Never acted on."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from monitoring.models import ApiToken, Checkpoint, Cluster, Discovery, Engine, Job, ReportedRun, RestartAttempt, Run
from tests.dashboard.api.conftest import Caller, caller_of
from tests.dashboard.api.test_agent_reports import PATH, RUN, batch, query, report
from tests.dashboard.views.test_clusters import TYPED
from tests.dashboard.views.test_watched_directory import ONLY_WATCHED, admin, poll

__all__ = ["admin", "caller_of"]


@pytest.fixture
def lake(db: None) -> Cluster:
    return Cluster.objects.create(name="lake", discovery=Discovery.AGENT)


@pytest.fixture
def caller(caller_of: Callable[..., Caller], operator_user: User, lake: Cluster) -> Caller:
    made = caller_of(operator_user, may_write=False)
    ApiToken.objects.update(reports_for=lake)
    return made


def text_of(page: Any) -> str:
    return " ".join(re.sub("<[^>]+>", " ", page.content.decode()).split())


def test_every_batch_becomes_a_checkpoint_of_a_run(caller: Caller, lake: Cluster) -> None:
    caller.post(PATH, report(*map(batch, range(3, 40))))
    poll(2)
    caller.post(PATH, report(batch(40)))
    poll(2)
    lake.refresh_from_db()
    assert (lake.engine, lake.last_error, lake.reachable) == (Engine.STREAMING, "", True)
    run = Run.objects.get()
    assert (run.job.name, run.engine_job_id, run.state) == ("shop/orders", RUN.hex, "RUNNING")
    counts = {"total": 38, "in_progress": None, "completed": 38, "failed": None, "restored": None}
    assert run.counts == counts
    assert run.position == {"batch": 40, "watermark": "2026-11-26T10:00:00+00:00", "sources": ["5"]}
    rows = Checkpoint.objects.order_by("checkpoint_id")
    assert [row.checkpoint_id for row in rows] == list(range(3, 41))
    assert {(row.status, row.end_to_end_duration, row.state_size, row.final) for row in rows} == {
        ("COMPLETED", 300, 512, True)
    }
    assert {row.checkpointed_size for row in rows} == {None}
    before = list(rows.values())
    caller.post(PATH, report(batch(40)))
    poll(2)
    assert list(Checkpoint.objects.order_by("checkpoint_id").values()) == before


def test_a_failure_ends_the_run_with_its_exception_and_the_next_run_belongs_to_the_job(caller: Caller) -> None:
    caller.post(PATH, report(batch(0)))
    poll(1)
    trace = "org.apache.spark.SparkException: Job aborted\n\tat x.Y\nCaused by: java.io.IOException: disk <full>"
    caller.post(PATH, report(queries=[query(state="ended", exception=trace)]))
    poll(2)
    run = Run.objects.get()
    assert (run.state, run.ended_at is not None) == ("FAILED", True)
    assert "disk <full>" in run.exception
    caller.post(PATH, report(batch(1, runId=str(uuid.uuid4())), queries=[]))
    poll(2)
    assert [(each.number, each.state) for each in Run.objects.order_by("number")] == [(1, "FAILED"), (2, "RUNNING")]
    assert Job.objects.get().current_run == Run.objects.get(number=2)


def test_ends_without_an_exception_and_runs_that_were_replaced_are_not_failures(caller: Caller) -> None:
    caller.post(PATH, report(queries=[query(state="ended")]))
    other = {"query_id": str(uuid.uuid4()), "name": "killed"}
    caller.post(PATH, report(queries=[query(run_id=str(uuid.UUID(int=5)), **other)]))
    poll(1)
    caller.post(PATH, report(queries=[query(run_id=str(uuid.UUID(int=6)), **other)]))
    poll(2)
    states = {each.engine_job_id: each.state for each in Run.objects.all()}
    assert states == {RUN.hex: "FINISHED", f"{5:032x}": "CANCELED", f"{6:032x}": "RUNNING"}


def test_a_program_that_is_silent_is_unknown_and_lost_only_after_a_day(caller: Caller, admin: Client) -> None:
    caller.post(PATH, report(batch(0)))
    poll(1)
    ReportedRun.objects.update(reported_at=timezone.now() - timedelta(minutes=3))
    poll(2)
    assert Run.objects.get().state == "RECONCILING"
    page = text_of(admin.get(reverse("job", args=[Job.objects.get().pk])))
    assert "The program has not reported for more than 2 min." in page
    caller.post(PATH, report())
    poll(2)
    assert Run.objects.get().state == "RUNNING"
    caller.post(PATH, report(queries=[query(run_id=str(uuid.uuid4()), query_id=str(uuid.uuid4()), name="other")]))
    ReportedRun.objects.filter(run_id=RUN.hex).update(reported_at=timezone.now() - timedelta(hours=25))
    poll(3)
    Run.objects.filter(engine_job_id=RUN.hex).update(missing_since=timezone.now() - timedelta(minutes=5))
    Cluster.objects.update(revision=F("revision") + 1)
    poll(2)
    assert Run.objects.get(engine_job_id=RUN.hex).state == "LOST"


def test_the_pages_show_spark_s_figures_and_unknown_ones_as_unknown(caller: Caller, admin: Client) -> None:
    caller.post(PATH, report(batch(0), batch(1), queries=[query(name="<b>orders", dropped=4)]))
    poll(2)
    job = Job.objects.get()
    response = admin.get(reverse("job", args=[job.pk]))
    page = text_of(response)
    assert "<b>orders" not in response.content.decode()
    assert "Run 1: 2 batches completed" in page
    assert "Spark reports no failed batches." in page
    assert "Batch 1 figures of Spark Rows read 7 Rows arriving per second 2.5 Rows processed per second –" in page
    assert "addBatch 200 ms walCommit 20 ms" in page
    assert "Batches not reported 4" in page
    assert "stateStoreSave 4 – – – 900 B –" in page
    checkpoint = Checkpoint.objects.get(checkpoint_id=0)
    assert "addBatch 200 ms" in text_of(admin.get(reverse("checkpoint", args=[checkpoint.pk])))
    for name in ("job-runs", "job-history", "job-summary", "job-configuration", "job-savepoints", "job-exceptions"):
        assert admin.get(reverse(name, args=[job.pk])).status_code == 200
    for name in ("fleet", "clusters"):
        assert admin.get(reverse(name)).status_code == 200
    assert "waymark_agent.attach(spark)" in text_of(admin.get(reverse("cluster", args=[job.cluster_id])))


def test_the_api_has_spark_s_figures_of_a_batch(caller: Caller, caller_of: Any, operator_user: User) -> None:
    caller.post(PATH, report(batch(0)))
    poll(2)
    api = caller_of(operator_user)
    found = api.get(f"/checkpoints/{Checkpoint.objects.get().pk}").json()
    assert found["progress"]["durationMs"] == {"addBatch": 200, "walCommit": 20, "triggerExecution": 300}
    assert found["progress"]["stateOperators"][0]["memoryUsedBytes"] == 900


def test_every_action_is_refused(caller: Caller, admin: Client) -> None:
    caller.post(PATH, report(batch(0)))
    poll(2)
    job = Job.objects.get()
    sent = (("job-savepoint", {}), ("job-stop", {}), ("job-cancel", {"reason": "x"}), ("job-restart", {"from": "stop"}))
    for name, body in sent:
        answer = admin.post(reverse(name, args=[job.pk]), body, follow=True)
        assert ONLY_WATCHED in answer.content.decode(), name
    assert not RestartAttempt.objects.exists()


def test_a_cluster_with_the_agent_is_added_and_gets_a_token(admin: Client, db: None) -> None:
    typed = TYPED | {"name": "lake", "discovery": "agent", "rest_url": "ignored"}
    assert "0 streaming queries found" in text_of(admin.post(reverse("cluster-test-new"), typed))
    admin.post(reverse("cluster-add"), typed)
    cluster = Cluster.objects.get()
    assert (cluster.discovery, cluster.rest_url) == (Discovery.AGENT, "")
    page = text_of(admin.get(reverse("tokens")))
    assert "only report queries for lake" in page
    body = {"name": "shop", "may": f"report-{cluster.pk}", "lasts": "90", "password": "pw-alma-1"}
    made = admin.post(reverse("tokens"), body)
    token = ApiToken.objects.get()
    assert (token.reports_for, token.may_write) == (cluster, False)
    assert "import waymark_agent; waymark_agent.attach(spark)" in made.content.decode()
    assert "report for lake" in text_of(admin.get(reverse("tokens")))
    poll(1)
    cluster.refresh_from_db()
    assert cluster.reachable


def test_a_viewer_gets_no_token_for_reports(viewer: Client, lake: Cluster) -> None:
    assert "only report queries" not in text_of(viewer.get(reverse("tokens")))
    viewer.post(reverse("tokens"), {"name": "x", "may": f"report-{lake.pk}", "lasts": "90", "password": "x"})
    assert not ApiToken.objects.exists()


def test_the_command_adds_a_cluster_with_the_agent(db: None) -> None:
    call_command("cluster", "add", "lake", "--agent")
    assert Cluster.objects.get().discovery == Discovery.AGENT


def test_another_version_of_spark_is_a_change_of_the_configuration(caller: Caller, admin: Client) -> None:
    caller.post(PATH, report(batch(0)))
    poll(2)
    upgraded = {"name": "shop", "spark": "4.4.0", "agent": "1.0.0"}
    caller.post(PATH, report(batch(1, runId=str(uuid.uuid4())), queries=[], program=upgraded))
    poll(2)
    page = text_of(admin.get(reverse("job-configuration", args=[Job.objects.get().pk])))
    assert "sparkVersion" in page
    assert "4.4.0" in page
