"""The API returns the data of the pages, in pages of items."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, get_args

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.api.restarts import RestartsParams
from monitoring import audit
from monitoring.models import AttemptState, ConfigurationChange, Incident, IncidentState, Job
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller


def walk(api: Caller, path: str, limit: int, **query: Any) -> list[dict[str, Any]]:
    """Return the items of all pages of a list."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = api.get(path, limit=limit, cursor=cursor, **query).json()
        assert len(page["items"]) <= limit
        found += page["items"]
        cursor = page["next"]
    return found


def test_job_json_matches_its_page(api: Caller, job: Job) -> None:
    (listed,) = api.get("/jobs").json()["items"]
    one = api.get(f"/jobs/{job.pk}").json()
    assert one == listed | {"sources": []}
    assert one["name"] == job.name
    assert one["health"]["state"] == "RUNNING"
    assert one["last_completed_id"] == 7
    assert one["engine_job_id"] == job.current_run.engine_job_id


def test_job_without_a_run_has_no_engine_job_id(api: Caller, job: Job) -> None:
    Job.objects.update(current_run=None)
    assert api.get("/jobs").json()["items"][0]["engine_job_id"] is None


def test_changes_of_a_job_are_listed_from_the_given_time_on(api: Caller, job: Job, now: datetime) -> None:
    for back, key in ((10, "mode"), (60 * 30, "timeout")):
        values = {"part": "checkpointing", "kind": "changed", "before": "a", "after": "b"}
        ConfigurationChange.objects.create(job=job, at=now - timedelta(minutes=back), key=key, **values)
    (change,) = api.get(f"/jobs/{job.pk}/changes").json()
    assert (change["kind"], change["sentence"]) == ("configuration", "mode: a → b")
    since = (now - timedelta(days=3)).isoformat()
    assert len(api.get(f"/jobs/{job.pk}/changes", since=since).json()) == 2
    assert api.get(f"/jobs/{job.pk}/changes", since="yesterday").status_code == 422


def test_paging_returns_each_checkpoint_once(api: Caller, job: Job) -> None:
    found = walk(api, f"/jobs/{job.pk}/checkpoints", 3)
    assert [row["checkpoint_id"] for row in found] == [7, 6, 5, 4, 3, 2, 1]


def test_checkpoints_are_filtered(api: Caller, job: Job, now: datetime) -> None:
    make.make_checkpoints(
        job.current_run, now + timedelta(minutes=1), make.Shape(count=2, failed=frozenset({0}), first_id=8)
    )
    found = walk(api, f"/jobs/{job.pk}/checkpoints", 50, status="FAILED")
    assert [row["checkpoint_id"] for row in found] == [9]


def test_paging_returns_rows_with_equal_times_once(api: Caller, job: Job, now: datetime) -> None:
    for _ in range(5):
        make.make_savepoint(job.current_run, now)
    found = walk(api, "/savepoints", 2)
    assert len({row["id"] for row in found}) == len(found) == 5


def test_checkpoint_json_includes_subtasks(api: Caller, job: Job) -> None:
    newest = api.get(f"/jobs/{job.pk}/checkpoints", limit=1).json()["items"][0]
    operator = api.get(f"/checkpoints/{newest['id']}").json()["operators"][1]
    body = api.get(f"/operators/{operator['id']}").json()
    assert [subtask["index"] for subtask in body["subtasks"]] == [0, 1, 2, 3]
    assert {"end_to_end", "sync", "async", "alignment", "start_delay", "state_size"} <= body["subtasks"][0][
        "figures"
    ].keys()


@pytest.mark.parametrize("path", ["/jobs", "/savepoints", "/incidents", "/restarts", "/rules", "/audit", "/messages"])
def test_invalid_cursor_is_refused(api: Caller, path: str) -> None:
    for cursor in ("nonsense", "WzEsMiwzLDRd", "WyJhIiwgImIiXQ", "WzFd" * 30):
        answer = api.get(path, cursor=cursor)
        assert answer.status_code in (200, 422)
    assert api.get(path, cursor="nonsense").json()["error"]["fields"][0]["field"] == "cursor"


def test_unknown_filter_is_refused_by_name(api: Caller) -> None:
    answer = api.get("/incidents", stat="open")
    assert answer.status_code == 422
    (wrong,) = answer.json()["error"]["fields"]
    assert (wrong["field"], wrong["value"]) == ("stat", "open")


def test_incidents_are_filtered_by_state(api: Caller, job: Job, now: datetime) -> None:
    rule = make.make_rule(job)
    old = make.make_incident(rule, now - timedelta(hours=1), state=IncidentState.RESOLVED, resolved_at=now)
    new = make.make_incident(rule, now)
    assert [row["id"] for row in api.get("/incidents").json()["items"]] == [new.pk, old.pk]
    assert [row["id"] for row in api.get("/incidents", state="unresolved").json()["items"]] == [new.pk]
    body = api.get(f"/incidents/{new.pk}").json()
    assert body["subject"] == job.name
    assert body["events"][0]["kind"] == "opened"
    assert body["sentence_value"] == body["events"][0]["text_value"] == new.sentence_value.as_json()
    assert Incident.objects.count() == 2


def test_audit_log_is_filtered_by_actor_action_and_time(api: Caller, now: datetime) -> None:
    audit.record("ida", "rule.change", "rule a", "because")
    audit.record("ida", "savepoint.request", "job b")
    body = api.get("/audit", actor="ida", action="rule.").json()["items"]
    assert [(row["action"], row["reason"]) for row in body] == [("rule.change", "because")]
    assert api.get("/audit", actor="ida", until=(now - timedelta(days=1)).isoformat()).json()["items"] == []
    assert api.get("/audit", since="2026-01-01T00:00:00").status_code == 422  # the time zone is missing


@pytest.mark.parametrize("path", ["/jobs", "/clusters", "/savepoints", "/incidents", "/rules"])
def test_a_list_needs_as_many_queries_for_many_rows_as_for_few(api: Caller, now: datetime, path: str) -> None:
    def queries_needed() -> int:
        with CaptureQueriesContext(
            connection,
        ) as asked:
            assert api.get(path, limit=200).status_code == 200
        return len(asked)

    api.get("/me")  # the first use of the token stores a row, later ones within a minute do not
    add(now, "few", 2)
    few = queries_needed()
    add(now, "many", 12)
    assert queries_needed() == few


def add(now: datetime, name: str, count: int) -> None:
    for number in range(count):
        job = make.make_job(make.make_cluster(now, f"{name}{number}"))
        make.make_savepoint(make.make_run(job, now), now)
        make.make_incident(make.make_rule(job), now)


def test_hidden_secrets_of_a_launch_record_can_be_sent_back(admin_api: Caller, job: Job) -> None:
    job.launch = make.LAUNCH | {
        "configuration": {"s3.secret-key": "hunter2"},
        "program_args": ["--db-password", "hunter2"],
    }
    job.save()
    body = admin_api.get(f"/jobs/{job.pk}/launch").json()["launch"]
    assert "hunter2" not in str(body)
    sent = {"configuration": body["configuration"], "program_args": body["program_args"], "parallelism": 8}
    answer = admin_api.post(f"/jobs/{job.pk}/launch", sent)
    assert answer.status_code == 202, answer.content
    job.refresh_from_db()
    assert job.launch["configuration"] == {"s3.secret-key": "hunter2"}
    assert (job.launch["program_args"], job.launch["parallelism"]) == (["--db-password", "hunter2"], 8)


def test_restarts_are_filtered_by_every_state() -> None:
    assert set(get_args(RestartsParams.model_fields["state"].annotation)) == {"", *AttemptState.values}


def test_jobs_are_filtered_by_label_and_invalid_selectors_are_refused(api: Caller, now: datetime) -> None:
    cluster = make.make_cluster(now)
    for name in ("orders", "mails"):
        make.make_job(cluster, name, labels={"team": name})
    assert [job["name"] for job in api.get("/jobs", labels="team=mails").json()["items"]] == ["mails"]
    refused = api.get("/jobs", labels="team=,")
    assert refused.status_code == 422
    assert [field["field"] for field in refused.json()["error"]["fields"]] == ["labels"]
