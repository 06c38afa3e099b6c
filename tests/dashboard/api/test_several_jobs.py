"""The API acts on several jobs, stores views of the fleet, and reads the state of snapshots."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from monitoring.models import AuditEntry, Checkpoint, Job, SavedView, Savepoint, StateRead
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller
from tests.dashboard.views.test_state import CONTENTS, answered


@pytest.fixture
def other(job: Job, now: datetime) -> Job:
    made = make.make_job(job.cluster, "another-job")
    make.make_run(made, now)
    return made


def test_bulk_action_succeeds_or_fails_for_each_job(api: Caller, job: Job, other: Job) -> None:
    api.post(f"/jobs/{job.pk}/savepoints")
    answer = api.post("/jobs/act", {"deed": "savepoint", "jobs": [job.pk, other.pk]})
    assert answer.status_code == 200
    refused, done = answer.json()
    assert (refused["job_id"], refused["done"]) == (job.pk, False)
    assert "already under way" in refused["text"]
    assert done == {"job_id": other.pk, "job": "another-job", "done": True, "text": "Savepoint requested."}
    assert Savepoint.objects.count() == 2


def test_labels_are_added_to_and_removed_from_several_jobs(api: Caller, job: Job, other: Job) -> None:
    both = [job.pk, other.pk]
    added = api.post("/jobs/act", {"deed": "label", "jobs": both, "labels": {"team": "x"}})
    assert [each["done"] for each in added.json()] == [True, True]
    assert all(each.labels["team"] == "x" for each in Job.objects.filter(pk__in=both))
    api.post("/jobs/act", {"deed": "unlabel", "jobs": both, "labels": {"team": "x"}})
    assert not any("team" in each.labels for each in Job.objects.filter(pk__in=both))
    assert AuditEntry.objects.filter(action="job.automation").count() == 4


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"deed": "savepoint", "jobs": [999_999]}, "jobs"),
        ({"deed": "savepoint", "jobs": []}, "jobs"),
        ({"deed": "explode", "jobs": [1]}, "deed"),
        ({"deed": "label", "jobs": "own"}, "labels"),
    ],
)
def test_invalid_bulk_action_is_refused(api: Caller, job: Job, body: dict[str, Any], field: str) -> None:
    own = [job.pk] if body["jobs"] == "own" else body["jobs"]
    answer = api.post("/jobs/act", body | {"jobs": own})
    assert answer.status_code == 422
    assert [each["field"].partition(".")[0] for each in answer.json()["error"]["fields"]] == [field]
    assert not Savepoint.objects.exists()


def test_saved_views_belong_to_their_owners(api: Caller, caller_of: Callable[..., Caller], db: None) -> None:
    kept = api.post("/views", {"name": "failing ones", "query": "state=failing&page=3"})
    assert kept.status_code == 201
    assert kept.json()["query"] == "state=failing", "only what filters"
    assert [each["name"] for each in api.get("/views").json()["items"]] == ["failing ones"]
    stranger = caller_of(User.objects.create_user("victor"))
    assert stranger.get("/views").json()["items"] == []
    assert stranger.post(f"/views/{kept.json()['id']}/forget").status_code == 404
    assert stranger.post("/views", {"name": "all", "query": "q=a"}).status_code == 201, "a viewer has views, too"
    assert api.post(f"/views/{kept.json()['id']}/forget").status_code == 200
    assert list(SavedView.objects.values_list("name", flat=True)) == ["all"]


def test_a_view_without_a_filter_and_a_token_that_may_read_only_are_refused(
    api: Caller, caller_of: Callable[..., Caller], operator_user: User
) -> None:
    answer = api.post("/views", {"name": "everything", "query": "page=3"})
    assert (answer.status_code, answer.json()["error"]["fields"][0]["field"]) == (422, "query")
    reader = caller_of(operator_user, may_write=False)
    assert reader.post("/views", {"name": "a", "query": "q=a"}).status_code == 403
    assert not SavedView.objects.exists()


@pytest.fixture
def spark_job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now, "waymark"), "keyed")
    make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=3, savepoints=frozenset({1})))
    return job


@pytest.fixture
def snapshot(spark_job: Job) -> Checkpoint:
    return Checkpoint.objects.select_related("run").get(run__job=spark_job, checkpoint_id=3)


def test_state_is_listed_then_read(api: Caller, spark_job: Job, snapshot: Checkpoint, now: datetime) -> None:
    where = f"/jobs/{spark_job.pk}"
    assert snapshot.pk in [each["id"] for each in api.get(f"{where}/snapshots").json()]
    early = api.post(f"{where}/state-reads", {"snapshot": snapshot.pk, "kind": "read", "place": "0:total"})
    assert (early.status_code, "First send kind list" in early.json()["error"]["message"]) == (409, True)
    assert api.post(f"{where}/state-reads", {"snapshot": snapshot.pk}).status_code == 202
    StateRead.objects.update(state="done", answer=CONTENTS)
    asked = api.post(
        f"{where}/state-reads", {"snapshot": snapshot.pk, "kind": "read", "place": "0:total", "contains": "JFK"}
    )
    assert asked.status_code == 202
    body = asked.json()
    assert (body["view"], body["contains"], body["state"], body["answer"]) == ("total", "JFK", "waiting", None)
    StateRead.objects.filter(pk=body["id"]).update(state="done", answer={"rows": [{"key": "JFK"}]})
    assert api.get(f"{where}/state-reads/{body['id']}").json()["answer"] == {"rows": [{"key": "JFK"}]}
    listed = api.get(f"{where}/state-reads").json()["items"]
    assert [(each["kind"], each["answer"]) for each in listed] == [("read", None), ("list", None)]


CANARY = "iban DE02120300000000202051"
WITH_OPERATOR_STATE = CONTENTS | {
    "operator_state": [
        {
            "query": "flights",
            "holder": "writer",
            "parallelism": 1,
            "states": [{"name": "accounts", "mode": "split", "elements": [[CANARY]]}],
        }
    ]
}


def test_operator_state_values_are_visible_only_to_operators(
    caller_of: Callable[..., Caller], operator_user: User, spark_job: Job, snapshot: Checkpoint, now: datetime
) -> None:
    listed = answered(spark_job, snapshot, now, answer=WITH_OPERATOR_STATE)
    where = f"/jobs/{spark_job.pk}/state-reads/{listed.pk}"
    assert caller_of(operator_user).get(where).json()["answer"] == WITH_OPERATOR_STATE
    for reader in (caller_of(User.objects.create_user("victor")), caller_of(operator_user, may_write=False)):
        found = reader.get(where)
        (state,) = found.json()["answer"]["operator_state"][0]["states"]
        assert state == {"name": "accounts", "mode": "split", "elements": None}
        assert found.json()["answer"]["keyed"] == CONTENTS["keyed"]
        assert CANARY not in found.content.decode()


def test_keys_and_values_are_for_operators(
    caller_of: Callable[..., Caller], operator_user: User, spark_job: Job, snapshot: Checkpoint, now: datetime
) -> None:
    typed = {"key_field": "account", "key_text": CANARY, "contains": CANARY}
    read = answered(spark_job, snapshot, now, kind="read", answer={"rows": [{"key": CANARY}]}, **typed)
    where = f"/jobs/{spark_job.pk}/state-reads"
    assert CANARY in caller_of(operator_user).get(where).content.decode()
    for reader in (caller_of(User.objects.create_user("victor")), caller_of(operator_user, may_write=False)):
        assert reader.get(f"{where}/{read.pk}").json()["answer"] is None
        assert CANARY not in reader.get(f"{where}/{read.pk}").content.decode()
        assert CANARY not in reader.get(where).content.decode()
        assert reader.post(where, {"snapshot": snapshot.pk}).status_code == 403


def test_missing_snapshot_or_operator_is_named(
    api: Caller, spark_job: Job, snapshot: Checkpoint, now: datetime
) -> None:
    where = f"/jobs/{spark_job.pk}/state-reads"
    unknown = api.post(where, {"snapshot": 999_999})
    assert (unknown.status_code, unknown.json()["error"]["fields"][0]["field"]) == (422, "snapshot")
    answered(spark_job, snapshot, now)
    lost = api.post(where, {"snapshot": snapshot.pk, "kind": "read", "place": "7:none"})
    assert (lost.status_code, lost.json()["error"]["fields"][0]["field"]) == (422, "place")
    assert StateRead.objects.count() == 1
