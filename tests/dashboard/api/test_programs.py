"""Uploading a program through the API, against an engine that answers over HTTP."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_httpserver import HTTPServer

from dashboard.forms import launch
from monitoring.models import AuditEntry, Cluster, Job, Program
from monitoring.programs import content_of, copy_of
from tests.dashboard.api.conftest import Caller


@pytest.fixture
def engine(job: Job, httpserver: HTTPServer) -> HTTPServer:
    Cluster.objects.update(rest_url=httpserver.url_for("/").rstrip("/"))
    httpserver.expect_request("/jars/upload", method="POST").respond_with_json(
        {"filename": "/up/9e_flights.py", "status": "success"}
    )
    return httpserver


def upload(caller: Caller, job: Job, name: str = "flights.py", content: bytes = b"print()", **headers: str) -> Any:
    sent = {"program": SimpleUploadedFile(name, content)}
    return Client().post(f"/api/v1/jobs/{job.pk}/programs", sent, headers=caller.headers | headers)


def test_uploaded_program_is_sent_to_the_cluster_and_copied(admin_api: Caller, job: Job, engine: HTTPServer) -> None:
    answer = upload(admin_api, job)
    assert answer.status_code == 201, answer.content
    digest = hashlib.sha256(b"print()").hexdigest()
    assert answer.json() == {"jar_id": "9e_flights.py", "name": "flights.py", "size": 7, "sha256": digest}
    copy = copy_of(job.cluster, "9e_flights.py")
    assert copy is not None
    assert content_of(copy) == b"print()"
    entry = AuditEntry.objects.get(action="job.program")
    assert (entry.target, entry.details["sha256"]) == (f"job {job.name}", digest)


def test_uploaded_program_can_be_used_in_a_launch(admin_api: Caller, job: Job, engine: HTTPServer) -> None:
    Job.objects.update(launch={"kind": "waymark", "jar_id": "1_old.py", "entry_class": "old:run"})
    jar_id = upload(admin_api, job).json()["jar_id"]
    answer = admin_api.post(f"/jobs/{job.pk}/launch", {"jar_id": jar_id, "entry_class": "flights:run"})
    assert answer.status_code == 202, answer.content
    job.refresh_from_db()
    assert (job.launch or {})["jar_id"] == "9e_flights.py"


def test_a_setting_with_several_lines_is_stored_unchanged(admin_api: Caller, job: Job) -> None:
    configuration = {"waymark.python.requirements": "pyspark==4.2.1\npandas==2.2.3"}
    sent = {"jar_id": "9e_flights.py", "entry_class": "flights:run", "configuration": configuration}
    assert admin_api.post(f"/jobs/{job.pk}/launch", sent).status_code == 202
    job.refresh_from_db()
    assert (job.launch or {})["configuration"] == configuration


def test_one_key_uploads_once(admin_api: Caller, job: Job, engine: HTTPServer) -> None:
    first, second = (upload(admin_api, job, **{"Idempotency-Key": "k1"}) for _ in range(2))
    assert first.json() == second.json()
    assert len(engine.log) == 1
    assert upload(admin_api, job, content=b"other", **{"Idempotency-Key": "k1"}).status_code == 409


def test_operator_cannot_upload_a_program(api: Caller, job: Job, engine: HTTPServer) -> None:
    assert upload(api, job).status_code == 403
    assert (engine.log, Program.objects.count()) == ([], 0)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("flights.exe", b"MZ", "is not a .py, .zip or .whl file"),
        ("a.py", b"", "empty"),
        ("a" * 220 + ".py", b"1", "200"),
    ],
)
def test_file_of_another_type_is_refused(
    admin_api: Caller, job: Job, engine: HTTPServer, name: str, content: bytes, says: str
) -> None:
    answer = upload(admin_api, job, name, content)
    assert answer.status_code == 422
    (field,) = answer.json()["error"]["fields"]
    assert field["field"] == "program"
    assert says in field["message"]
    assert engine.log == []


def test_a_program_that_is_too_large_is_refused(
    admin_api: Caller, job: Job, engine: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "LARGEST_MB", 1)
    answer = upload(admin_api, job, content=b"x" * (1024 * 1024 + 1))
    assert (answer.status_code, engine.log) == (422, [])
    assert "At most 1 MB are allowed." in answer.json()["error"]["message"]


def test_refusal_by_the_cluster_is_a_conflict(admin_api: Caller, job: Job, httpserver: HTTPServer) -> None:
    Cluster.objects.update(rest_url=httpserver.url_for("/").rstrip("/"))
    httpserver.expect_request("/jars/upload").respond_with_json({"errors": ["Only a .py, please."]}, status=400)
    answer = upload(admin_api, job, "flights.zip", b"PK")
    assert answer.status_code == 409
    assert "Only a .py, please." in answer.json()["error"]["message"]
    assert not Program.objects.exists()


def test_no_file_and_no_form_are_refused(admin_api: Caller, job: Job) -> None:
    form = Client().post(f"/api/v1/jobs/{job.pk}/programs", {"other": "1"}, headers=admin_api.headers)
    for nothing in (form, admin_api.post(f"/jobs/{job.pk}/programs", {"program": "print()"})):
        assert nothing.status_code == 422
        assert nothing.json()["error"]["fields"][0]["field"] == "program"
    elsewhere = Client().post("/api/v1/rules", {"kind": "alignment"}, headers=admin_api.headers)
    assert elsewhere.status_code == 415
