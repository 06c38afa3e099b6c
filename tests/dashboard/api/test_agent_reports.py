"""Reports of the agent: who may send them, what is stored, and what is refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from dashboard.access import tokens
from monitoring.engine.reported import storing
from monitoring.models import Account, ApiToken, Cluster, Discovery, Grant, ReportedBatch, ReportedRun, WatchedQuery
from tests.dashboard.api.conftest import Caller
from tests.monitoring.conftest import Rows

QUERY, RUN = uuid.UUID(int=1), uuid.UUID(int=2)
PATH = "/agent/reports"


@pytest.fixture
def cluster(db: None) -> Cluster:
    return Cluster.objects.create(name="lake", discovery=Discovery.AGENT)


@pytest.fixture
def caller(caller_of: Callable[..., Caller], operator_user: User, cluster: Cluster) -> Caller:
    """Return the caller with a token that reports for the cluster."""
    made = caller_of(operator_user, may_write=False)
    ApiToken.objects.update(reports_for=cluster)
    return made


def query(**fields: Any) -> dict[str, Any]:
    at = datetime.now(UTC).isoformat()
    return {
        "query_id": str(QUERY),
        "run_id": str(RUN),
        "name": "orders",
        "state": "running",
        "started_at": at,
        "idle_at": None,
        "ended_at": None,
        "exception": None,
        "dropped": 0,
    } | fields


def batch(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": str(QUERY),
        "runId": str(RUN),
        "name": "orders",
        "timestamp": (datetime.now(UTC) + timedelta(milliseconds=number % 1000)).isoformat(),
        "batchId": number,
        "batchDuration": 300,
        "durationMs": {"addBatch": 200, "walCommit": 20, "triggerExecution": 300},
        "eventTime": {"watermark": "2026-11-26T10:00:00.000Z"},
        "numInputRows": 7,
        "inputRowsPerSecond": 2.5,
        "stateOperators": [
            {
                "operatorName": "stateStoreSave",
                "numRowsTotal": 4,
                "memoryUsedBytes": 900,
                "customMetrics": {"stateOnCurrentVersionSizeBytes": 512},
            }
        ],
        "sources": [{"description": "Rate", "endOffset": "5", "numInputRows": 7}],
        "sink": {"description": "Console"},
    } | fields


def report(*batches: dict[str, Any], queries: list[dict[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
    program = {"name": "shop", "spark": "4.3.0", "agent": "1.0.0"}
    known = [query()] if queries is None else queries
    return {"version": 1, "program": program, "queries": known, "progress": list(batches)} | fields


def test_a_report_is_stored_and_a_repeated_one_changes_nothing(caller: Caller) -> None:
    sent = report(batch(0), batch(1))
    assert caller.post(PATH, sent).json() == {"version": 1, "stored": 2}
    before = list(ReportedBatch.objects.order_by("pk").values())
    assert caller.post(PATH, sent).json() == {"version": 1, "stored": 0}
    assert caller.post(PATH, report(batch(1), batch(2))).json() == {"version": 1, "stored": 1}
    assert list(ReportedBatch.objects.order_by("pk").values())[:2] == before
    run = ReportedRun.objects.get()
    assert (run.name, run.query_id, run.run_id) == ("shop/orders", QUERY.hex, RUN.hex)
    assert (run.first_batch, run.newest_batch, run.spark_version) == (0, 2, "4.3.0")
    stored = ReportedBatch.objects.get(batch_id=1)
    assert (stored.duration_ms, stored.state_size) == (300, 512)
    assert stored.progress["numInputRows"] == 7
    assert stored.progress["processedRowsPerSecond"] is None
    assert stored.progress["stateOperators"][0]["numRowsUpdated"] is None


def test_only_the_newest_batches_of_a_run_stay(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "BATCHES_KEPT", 10)
    for first in range(0, 60, 20):
        assert caller.post(PATH, report(*map(batch, range(first, first + 20)))).status_code == 200
    assert sorted(ReportedBatch.objects.values_list("batch_id", flat=True)) == list(range(50, 60))
    assert ReportedRun.objects.get().first_batch == 0


def test_runs_without_reports_are_forgotten_and_their_number_is_limited(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "MOST_RUNS", 3)
    many = [query(run_id=str(uuid.uuid4()), query_id=str(uuid.uuid4()), name=f"q{n}") for n in range(4)]
    refused = caller.post(PATH, report(queries=many))
    assert (refused.status_code, refused.json()["error"]["fields"][0]["field"]) == (400, "queries")
    assert caller.post(PATH, report(queries=many[:3])).status_code == 200
    ReportedRun.objects.update(reported_at=timezone.now() - storing.KEPT - timedelta(minutes=1))
    assert caller.post(PATH, report(queries=many[3:])).status_code == 200
    assert ReportedRun.objects.count() == 1


def test_the_end_is_stored_once_with_its_exception(caller: Caller) -> None:
    ended = query(state="ended", ended_at=datetime.now(UTC).isoformat(), exception="boom")
    caller.post(PATH, report(batch(0)))
    caller.post(PATH, report(queries=[ended]))
    at = ReportedRun.objects.get().ended_at
    caller.post(PATH, report(batch(1), queries=[ended | {"ended_at": None, "exception": "other"}]))
    run = ReportedRun.objects.get()
    assert (run.ended_at, run.exception, run.newest_batch) == (at, "boom", 1)


def test_the_next_run_of_a_query_ends_the_one_before(caller: Caller) -> None:
    before = datetime.now(UTC) - timedelta(minutes=5)
    caller.post(PATH, report(queries=[query(started_at=before.isoformat())]))
    caller.post(PATH, report(queries=[query(run_id=str(uuid.uuid4()))]))
    old, new = ReportedRun.objects.order_by("started_at")
    assert (old.was_replaced, old.ended_at, new.ended_at) == (True, new.started_at, None)
    assert old.name == new.name


def test_another_running_query_with_the_same_name_is_another_job(caller: Caller) -> None:
    caller.post(PATH, report())
    caller.post(PATH, report(queries=[query(query_id=str(uuid.UUID(int=9)), run_id=str(uuid.uuid4()))]))
    assert set(ReportedRun.objects.values_list("name", flat=True)) == {"shop/orders", "shop/orders 00000000"}


WRONG: list[tuple[Any, str]] = [
    ([], ""),
    ({}, "version"),
    (report(version=2), "version"),
    (report(version="1"), "version"),
    (report(program={"name": "x" * 201, "spark": "4"}), "program.name"),
    (report(queries={}), "queries"),
    (report(queries=[query()] * 1001), "queries"),
    (report(queries=[query(run_id="x")]), "queries[0].run_id"),
    (report(queries=[query(state="gone")]), "queries[0].state"),
    (report(queries=[query(started_at="yesterday")]), "queries[0].started_at"),
    (report(queries=[query(started_at="2026-01-01T00:00:00")]), "queries[0].started_at"),
    (report(queries=[query(started_at="9999-01-01T00:00:00Z")]), "queries[0].started_at"),
    (report(queries=[query(state="ended", exception="x" * 20_001)]), "queries[0].exception"),
    (report(*[batch(0)] * 201), "progress"),
    (report(batch(-1)), "progress[0].batchId"),
    (report(batch(2**70)), "progress[0].batchId"),
    (report(batch(0), batch(1, batchId="1")), "progress[1].batchId"),
    (report(batch(0, timestamp=None)), "progress[0].timestamp"),
    (report(batch(0, durationMs={"addBatch": "long"})), "progress[0].durationMs.addBatch"),
    (report(batch(0, durationMs={"<b>": 1})), "progress[0].durationMs.<b>"),
    (report(batch(0, inputRowsPerSecond="fast")), "progress[0].inputRowsPerSecond"),
    (report(batch(0, sources=[{"description": 5}])), "progress[0].sources[0].description"),
    (report(batch(0, stateOperators=[{}] * 101)), "progress[0].stateOperators"),
    (report(batch(0, eventTime=[])), "progress[0].eventTime"),
]


@pytest.mark.parametrize(("sent", "field"), WRONG, ids=[field or "body" for _, field in WRONG])
def test_a_wrong_report_is_refused_with_the_name_of_the_field(caller: Caller, sent: Any, field: str) -> None:
    answer = caller.post(PATH, sent)
    assert answer.status_code == 400, answer.content
    error = answer.json()["error"]
    assert error["fields"][0]["field"] == field
    assert field in error["message"]
    assert not ReportedRun.objects.exists()


def test_a_body_that_is_not_json_or_too_large_is_refused(caller: Caller) -> None:
    from django.test import Client

    def send(content: bytes) -> Any:
        return Client().post(f"/api/v1{PATH}", content, content_type="application/json", headers=caller.headers)

    assert send(b"<html>").status_code == 400
    assert send(b'{"version": NaN}').status_code == 400
    assert send(b"[" * 100_000).status_code == 400
    assert send(b'"' + b"x" * 2_000_001 + b'"').status_code == 413
    nul = report(queries=[query(name="a\x00b\ud800")])
    assert send(json.dumps(nul).encode()).status_code == 200


def test_other_tokens_and_sessions_may_not_report(api: Caller, admin_api: Caller, cluster: Cluster) -> None:
    for each in (api, admin_api):
        answer = each.post(PATH, report())
        assert (answer.status_code, "token for reports" in answer.json()["error"]["message"]) == (403, True)
    assert Caller({}).post(PATH, report()).status_code == 401


def test_the_token_may_do_nothing_else(caller: Caller) -> None:
    for path in ("/fleet", "/me", "/clusters", "/openapi.json"):
        answer = caller.get(path)
        assert answer.status_code == 403
        assert answer.json()["error"]["message"] == "This token can only report queries for the cluster lake."
    assert caller.post("/clusters", {}).status_code == 403


def test_the_token_reports_only_while_its_account_operates_the_cluster(
    caller: Caller, operator_user: User, cluster: Cluster, now: datetime
) -> None:
    User.objects.filter(pk=operator_user.pk).update(is_staff=False)
    assert caller.post(PATH, report()).status_code == 403
    Account.objects.update_or_create(user=operator_user, defaults={"granted_only": True})
    assert caller.post(PATH, report()).status_code == 403
    Grant.objects.create(user=operator_user, role="operator", cluster=cluster, created_at=now, created_by="admin")
    assert caller.post(PATH, report()).status_code == 200
    Cluster.objects.update(archived_at=now)
    assert caller.post(PATH, report()).status_code == 403


def test_a_query_of_another_clusters_job_needs_an_operator_of_that_job(
    caller: Caller, operator_user: User, cluster: Cluster, now: datetime
) -> None:
    rows = Rows(now=now)
    job = rows.job(rows.cluster(discovery=Discovery.DIRECTORY))
    WatchedQuery.objects.create(query_id=QUERY.hex, job=job)
    assert caller.post(PATH, report(batch(1))).status_code == 200
    Account.objects.update_or_create(user=operator_user, defaults={"granted_only": True})
    Grant.objects.create(user=operator_user, role="operator", cluster=cluster, created_at=now, created_by="admin")
    for sent in (report(), report(batch(2), queries=[])):
        answer = caller.post(PATH, sent)
        assert (answer.status_code, QUERY.hex in answer.json()["error"]["message"]) == (403, True)
    assert ReportedBatch.objects.count() == 1
    WatchedQuery.objects.update(job=rows.job(cluster))
    assert caller.post(PATH, report(batch(2))).status_code == 200


def test_a_revoked_token_reports_nothing(caller: Caller, now: datetime) -> None:
    tokens.revoke(ApiToken.objects.get(), "anna", now)
    assert caller.post(PATH, report()).status_code == 401
    assert not ReportedRun.objects.exists()


def test_reports_do_not_use_up_the_requests_of_the_account(
    caller: Caller, caller_of: Callable[..., Caller], operator_user: User, settings: Any
) -> None:
    own = caller_of(operator_user)
    settings.API_CALLS_PER_MINUTE = 2
    sent = [caller.post(PATH, report()).status_code for _ in range(5)]
    assert 429 in sent
    assert own.get("/me").status_code == 200
