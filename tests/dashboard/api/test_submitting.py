"""Submitting a new job through the API, against an engine that answers over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_httpserver import HTTPServer

from monitoring.models import Cluster, Engine, Job, RestartAttempt
from tests.dashboard.api.conftest import Caller
from tests.dashboard.views.test_submitting import DAMAGED, FOUND, REFUSED, expect_look, expect_snapshot

BODY = {"name": "orders", "jar_id": "9e_orders.py", "entry_class": "orders.py"}
CHECKPOINT = {**BODY, "state": "checkpoint", "checkpoints": {"": "/checkpoints/orders"}}


@pytest.fixture
def cluster(job: Job, httpserver: HTTPServer) -> Cluster:
    Cluster.objects.update(rest_url=httpserver.url_for("/").rstrip("/"))
    return Cluster.objects.get()


def look(caller: Caller, cluster: Cluster, checkpoints: Any) -> Any:
    return caller.post(f"/clusters/{cluster.pk}/checkpoint-locations", {"checkpoints": checkpoints})


def test_checkpoints_at_locations_are_listed(admin_api: Caller, cluster: Cluster, httpserver: HTTPServer) -> None:
    expect_look(httpserver, FOUND | {"query": "a"}, REFUSED | {"query": "b"})
    found, refused = look(admin_api, cluster, {"a": "/checkpoints/orders", "b": "/none"}).json()
    assert found == {
        "query": "a",
        "location": "file:/checkpoints/orders",
        "valid": True,
        "reason": "",
        "reason_value": None,
        "query_id": "6f2f",
        "batch": 41,
        "batch_at": "2026-11-25T03:06:05.862Z",
        "begun_batch": 42,
        "sources": 1,
        "operators": [{"name": "stateStoreSave", "partitions": 8}],
        "store": "RocksDB",
        "formats": {"offsets": "v1", "commits": "v2"},
        "size": 81_300,
    }
    assert (refused["valid"], refused["reason"], refused["batch"]) == (False, "/checkpoints/orders is no.", None)


def test_the_reason_against_an_import_has_a_code(admin_api: Caller, cluster: Cluster, httpserver: HTTPServer) -> None:
    refusal = {"code": "imports.empty", "args": {"location": "/none"}}
    expect_look(httpserver, REFUSED | {"refusal": refusal})
    (refused,) = look(admin_api, cluster, {"": "/none"}).json()
    assert (refused["reason"], refused["reason_value"]) == ("/none does not exist, or is empty.", refusal)


def test_the_job_starts_from_copies_of_the_checkpoints(
    admin_api: Caller, cluster: Cluster, httpserver: HTTPServer
) -> None:
    expect_look(httpserver, FOUND)
    answer = admin_api.post(f"/clusters/{cluster.pk}/jobs", CHECKPOINT)
    assert answer.status_code == 202, answer.content
    attempt = RestartAttempt.objects.get()
    assert (answer.json()["id"], answer.json()["imports"]) == (attempt.pk, {"": "/checkpoints/orders"})
    assert (attempt.job.name, attempt.imports) == ("orders", {"": "/checkpoints/orders"})


def test_a_setting_with_several_lines_is_stored_unchanged(admin_api: Caller, cluster: Cluster) -> None:
    configuration = {"waymark.python.requirements": "pyspark==4.2.1\n# newer ones fail\n\npandas", "spark.x": "y"}
    answer = admin_api.post(f"/clusters/{cluster.pk}/jobs", BODY | {"configuration": configuration})
    assert answer.status_code == 202, answer.content
    assert RestartAttempt.objects.get().launch["configuration"] == configuration


def test_savepoint_at_a_location_is_described(admin_api: Caller, cluster: Cluster, httpserver: HTTPServer) -> None:
    expect_snapshot(httpserver)
    answer = admin_api.post(f"/clusters/{cluster.pk}/snapshots", {"savepoint": "/sp/1/", "entry_class": "orders.py"})
    assert answer.json() == {
        "valid": True,
        "reason": "",
        "checkpoint_id": 12,
        "job_name": "mails",
        "entry_class": "orders.py",
        "state_size": 81_300,
        "completed_at": "2026-11-25T03:06:05.862Z",
        "written_again": [{"query": "late", "sink": "console"}],
    }
    assert httpserver.log[0][0].get_json() == {"savepointPath": "/sp/1", "entryClass": "orders.py"}


def test_savepoint_is_validated_before_submission(admin_api: Caller, cluster: Cluster, httpserver: HTTPServer) -> None:
    body = BODY | {"state": "savepoint", "savepoint": "/sp/1"}
    expect_snapshot(httpserver, **DAMAGED)
    answer = admin_api.post(f"/clusters/{cluster.pk}/jobs", body)
    assert answer.status_code == 422
    [wrong] = answer.json()["error"]["fields"]
    assert (wrong["field"], wrong["message"]) == ("savepoint", DAMAGED["reason"])
    httpserver.clear()
    expect_snapshot(httpserver)
    assert admin_api.post(f"/clusters/{cluster.pk}/jobs", body).status_code == 202
    assert RestartAttempt.objects.get().restore_path == "/sp/1"


def test_one_key_submits_once(admin_api: Caller, cluster: Cluster, httpserver: HTTPServer) -> None:
    expect_look(httpserver, FOUND)
    headers = {"Idempotency-Key": "k1"}
    first, second = (admin_api.post(f"/clusters/{cluster.pk}/jobs", CHECKPOINT, **headers) for _ in range(2))
    assert first.json() == second.json()
    assert RestartAttempt.objects.count() == 1


def test_submission_without_state_validates_no_snapshot(
    admin_api: Caller, cluster: Cluster, httpserver: HTTPServer
) -> None:
    assert admin_api.post(f"/clusters/{cluster.pk}/jobs", BODY).status_code == 202
    assert RestartAttempt.objects.get().start_empty
    assert httpserver.log == []


@pytest.mark.parametrize(
    ("changed", "field", "expected"),
    [
        ({"checkpoints": {}}, "checkpoints", "Enter a location."),
        ({"checkpoints": {"a": "orders"}}, "checkpoints", "'orders' is neither an absolute path"),
        ({"checkpoints": {"": "/a", "b": "/b"}}, "checkpoints", "Write NAME=LOCATION for each query."),
        ({"name": ""}, "name", "This field is required."),
        ({"jar_id": ""}, "upload", "A program is needed"),
        ({"state": "nothing"}, "state", "'empty', 'savepoint' or 'checkpoint'"),
        ({"checkpoint": "/a"}, "checkpoint", "not permitted"),
    ],
)
def test_submission_errors_name_their_fields(
    admin_api: Caller, cluster: Cluster, changed: dict[str, Any], field: str, expected: str
) -> None:
    answer = admin_api.post(f"/clusters/{cluster.pk}/jobs", CHECKPOINT | changed)
    assert answer.status_code == 422
    [wrong] = answer.json()["error"]["fields"]
    assert wrong["field"] == field
    assert expected in wrong["message"]
    assert not RestartAttempt.objects.exists()


def test_a_location_that_cannot_be_used_is_refused_with_its_reason(
    admin_api: Caller, cluster: Cluster, httpserver: HTTPServer
) -> None:
    expect_look(httpserver, REFUSED)
    answer = admin_api.post(f"/clusters/{cluster.pk}/jobs", CHECKPOINT)
    assert answer.status_code == 422
    [wrong] = answer.json()["error"]["fields"]
    assert (wrong["field"], wrong["message"]) == ("checkpoints", "/checkpoints/orders is no.")
    assert not RestartAttempt.objects.exists()


def test_a_program_is_uploaded_to_the_cluster(admin_api: Caller, cluster: Cluster, httpserver: HTTPServer) -> None:
    httpserver.expect_request("/jars/upload", method="POST").respond_with_json(
        {"filename": "/up/9e_orders.py", "status": "success"}
    )
    sent = {"program": SimpleUploadedFile("orders.py", b"print()")}
    answer = Client().post(f"/api/v1/clusters/{cluster.pk}/programs", sent, headers=admin_api.headers)
    assert (answer.status_code, answer.json()["jar_id"]) == (201, "9e_orders.py")


def test_operator_cannot_submit_a_job(api: Caller, cluster: Cluster, httpserver: HTTPServer) -> None:
    assert api.post(f"/clusters/{cluster.pk}/jobs", BODY).status_code == 403
    assert look(api, cluster, {"": "/a"}).status_code == 403
    assert httpserver.log == []


def test_flink_cluster_refuses_pyspark_submission(admin_api: Caller, cluster: Cluster) -> None:
    Cluster.objects.update(engine=Engine.FLINK)
    answer = admin_api.post(f"/clusters/{cluster.pk}/jobs", BODY)
    assert answer.status_code == 409
    assert "is not a Waymark job manager" in answer.json()["error"]["message"]
