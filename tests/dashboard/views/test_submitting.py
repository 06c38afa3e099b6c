"""The page that submits a job creates the rows that the workers process."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_httpserver import HTTPServer

from monitoring.models import Cluster, Discovery, Engine, Job, RestartAttempt, Run, RunState, WatchedQuery
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

TYPED = {
    "name": "orders",
    "jar_id": "4c2f_orders.py",
    "entry_class": "orders.py",
    "program_args": "/data/orders\r\nprod",
    "configuration": "execution.checkpointing.interval: 1min",
    "state": "checkpoint",
    "checkpoints": "/checkpoints/orders",
}
FOUND = {
    "query": "",
    "location": "file:/checkpoints/orders",
    "valid": True,
    "reason": "",
    "queryId": "6f2f",
    "batch": 41,
    "batchTimestamp": 1_795_575_965_862,
    "begunBatch": 42,
    "sources": 1,
    "operators": [{"name": "stateStoreSave", "partitions": 8}],
    "stateStore": "RocksDB",
    "formats": {"offsets": "v1", "commits": "v2"},
    "files": 30,
    "size": 81_300,
}
REFUSED = {"query": "", "location": "file:/checkpoints/orders", "valid": False, "reason": "/checkpoints/orders is no."}
SEEN = "6f2f:41"
SNAPSHOT = {
    "valid": True,
    "missing": False,
    "reason": None,
    "checkpointId": 12,
    "jobName": "mails",
    "entryClass": "orders.py",
    "stateSize": 81_300,
    "completedTimestamp": 1_795_575_965_862,
    "queries": [
        {"name": "late", "sink": "Sink: console", "after-restore": "written-again"},
        {"name": "orders", "sink": "Sink: FileSink[/out]", "after-restore": "goes-back"},
    ],
}
DAMAGED = {
    **dict.fromkeys(SNAPSHOT),
    "valid": False,
    "missing": False,
    "reason": "Snapshot /sp/1: file 4c is missing.",
}


@pytest.fixture
def cluster(now: datetime, httpserver: HTTPServer) -> Cluster:
    cluster = make.make_cluster(now)
    cluster.rest_url = httpserver.url_for("/").rstrip("/")
    cluster.save()
    return cluster


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="pw-ada-1"))
    return client


def expect_look(engine: HTTPServer, *found: dict[str, Any]) -> None:
    engine.expect_request("/savepoints/import/validate", method="POST").respond_with_json({"checkpoints": found})


def expect_snapshot(engine: HTTPServer, **found: Any) -> None:
    engine.expect_request("/savepoints/validate", method="POST").respond_with_json(SNAPSHOT | found)


def send(client: Client, cluster: Cluster, **typed: object) -> Any:
    return client.post(reverse("cluster-submit", args=[cluster.pk]), TYPED | typed)


def test_checkpoints_at_a_location_are_shown_before_the_start(
    admin: Client, cluster: Cluster, httpserver: HTTPServer
) -> None:
    expect_look(httpserver, FOUND)
    page = admin.post(reverse("cluster-look", args=[cluster.pk]), {"checkpoints": "/checkpoints/orders"})
    text = page.content.decode()
    for result in ("The job continues after batch 41.", "stateStoreSave", "8 partitions", "RocksDB", "commits v2"):
        assert result in text
    assert "Batch 42 was started but not committed. It runs again" in text
    assert "does not change the location" in text
    assert f'name="found" value="{SEEN}"' in text


def test_the_job_continues_the_history_of_the_watched_one(
    admin: Client, cluster: Cluster, httpserver: HTTPServer
) -> None:
    lake = Cluster.objects.create(name="lake", discovery=Discovery.DIRECTORY, rest_url="/checkpoints")
    watched = Job.objects.create(cluster=lake, name="shop/orders")
    now = timezone.now()
    run = Run.objects.create(
        job=watched, number=1, engine_job_id="6f2f", state=RunState.RUNNING, observed_at=now, started_at=now
    )
    Job.objects.update(current_run=run)
    WatchedQuery.objects.create(query_id="6f2f", job=watched)
    expect_look(httpserver, FOUND)
    send(admin, cluster, found=SEEN)
    job = Job.objects.get()
    assert (job.pk, job.cluster, job.name) == (watched.pk, cluster, "orders")
    assert RestartAttempt.objects.get().job == job
    assert [each.state for each in job.runs.all()] == [RunState.CANCELED]


def test_the_job_starts_from_the_displayed_checkpoint(admin: Client, cluster: Cluster, httpserver: HTTPServer) -> None:
    expect_look(httpserver, FOUND)
    answer = send(admin, cluster, found=SEEN)
    attempt = RestartAttempt.objects.get()
    assert answer.headers["Location"] == reverse("restart-progress", args=[attempt.pk])
    assert (attempt.imports, attempt.restore_path, attempt.start_empty) == ({"": "/checkpoints/orders"}, "", False)
    assert attempt.launch == {
        "kind": "waymark",
        "jar_id": "4c2f_orders.py",
        "entry_class": "orders.py",
        "program_args": ["/data/orders", "prod"],
        "parallelism": None,
        "configuration": {"execution.checkpointing.interval": "1min"},
    }
    page = admin.get(answer.headers["Location"]).content.decode()
    assert "Start of orders" in page
    assert "/checkpoints/orders" in page
    assert "Waymark copies the location and does not change it." in page


@pytest.mark.parametrize("seen", ["", "6f2f:40"])
def test_a_checkpoint_that_was_not_displayed_is_not_submitted(
    admin: Client, cluster: Cluster, httpserver: HTTPServer, seen: str
) -> None:
    expect_look(httpserver, FOUND)
    answer = send(admin, cluster, found=seen)
    assert answer.status_code == 422
    assert answer.context["form"].errors["checkpoints"] == [
        "Check what was found at the checkpoint location, then submit the job again."
    ]
    assert f'name="found" value="{SEEN}"' in answer.content.decode()
    assert not Job.objects.exists()


def test_a_refused_location_starts_no_job(admin: Client, cluster: Cluster, httpserver: HTTPServer) -> None:
    expect_look(httpserver, REFUSED)
    answer = send(admin, cluster)
    assert answer.context["form"].errors["checkpoints"] == ["/checkpoints/orders is no."]
    page = admin.post(reverse("cluster-look", args=[cluster.pk]), {"checkpoints": "/checkpoints/orders"})
    assert "/checkpoints/orders is no." in page.content.decode()
    assert not Job.objects.exists()


def test_each_query_has_a_separate_location(admin: Client, cluster: Cluster, httpserver: HTTPServer) -> None:
    expect_look(httpserver, FOUND | {"query": "a"}, FOUND | {"query": "b", "queryId": "77aa"})
    send(admin, cluster, checkpoints="a=/c/a\r\n\r\n b=s3://bucket/day=1/ ", found="6f2f:41 77aa:41")
    assert RestartAttempt.objects.get().imports == {"a": "/c/a", "b": "s3://bucket/day=1"}


def test_a_program_is_uploaded(admin: Client, cluster: Cluster, httpserver: HTTPServer) -> None:
    httpserver.expect_request("/jars/upload", method="POST").respond_with_json(
        {"filename": "/up/9e_orders.py", "status": "success"}
    )
    program = SimpleUploadedFile("orders.py", b"print()")
    send(admin, cluster, state="empty", jar_id="", entry_class="", upload=program)
    attempt = RestartAttempt.objects.get()
    assert (attempt.launch["jar_id"], attempt.start_empty) == ("9e_orders.py", True)
    assert attempt.launch["entry_class"] == "orders.py"


def test_an_archive_needs_an_entry(admin: Client, cluster: Cluster) -> None:
    program = SimpleUploadedFile("orders.zip", b"PK")
    answer = send(admin, cluster, state="empty", jar_id="", entry_class="", upload=program)
    assert answer.context["form"].errors["entry_class"] == ["This field is required."]
    assert not Job.objects.exists()


def test_a_new_job_has_a_checkpoint_interval_by_default(admin: Client, cluster: Cluster) -> None:
    form = admin.get(reverse("cluster-submit", args=[cluster.pk])).context["form"]
    assert form["configuration"].value() == "execution.checkpointing.interval: 1min"


def test_a_savepoint_is_named_by_its_location(admin: Client, cluster: Cluster, httpserver: HTTPServer) -> None:
    expect_snapshot(httpserver, queries=[])
    send(admin, cluster, state="savepoint", savepoint="file:/sp/savepoint-1/")
    assert RestartAttempt.objects.get().restore_path == "/sp/savepoint-1"
    assert httpserver.log[0][0].get_json() == {"savepointPath": "/sp/savepoint-1", "entryClass": "orders.py"}


def test_queries_that_write_rows_again_are_shown_before_anything_starts(
    admin: Client, cluster: Cluster, httpserver: HTTPServer
) -> None:
    expect_snapshot(httpserver)
    shown = admin.post(
        reverse("cluster-look-savepoint", args=[cluster.pk]), {"savepoint": "/sp/1/", "entry_class": "orders.py"}
    ).content.decode()
    refused = send(admin, cluster, state="savepoint", savepoint="/sp/1", warned="/sp/2")
    assert refused.context["form"].errors["savepoint"] == [
        "Check which queries write rows again, then submit the job again."
    ]
    for page in (shown, refused.content.decode()):
        assert "Written twice:" in page
        assert "late to console" in page
        assert "orders to" not in page
        assert 'name="warned" value="/sp/1"' in page
    assert not Job.objects.exists()
    assert send(admin, cluster, state="savepoint", savepoint="/sp/1", warned="/sp/1").status_code == 302


def test_a_damaged_savepoint_starts_nothing(admin: Client, cluster: Cluster, httpserver: HTTPServer) -> None:
    expect_snapshot(httpserver, **DAMAGED)
    page = admin.post(reverse("cluster-look-savepoint", args=[cluster.pk]), {"savepoint": "/sp/1"}).content.decode()
    assert "file 4c is missing." in page
    answer = send(admin, cluster, state="savepoint", savepoint="/sp/1", warned="/sp/1")
    assert answer.context["form"].errors["savepoint"] == [DAMAGED["reason"]]
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("sp/1", "neither an absolute path nor an address"), ("", ""), ("/sp/1", "has not answered")],
)
def test_a_savepoint_that_cannot_be_checked_is_reported_as_such(
    admin: Client, cluster: Cluster, httpserver: HTTPServer, typed: str, expected: str
) -> None:
    httpserver.expect_request("/savepoints/validate").respond_with_json({"errors": ["/ has not answered"]}, status=503)
    answer = admin.post(reverse("cluster-look-savepoint", args=[cluster.pk]), {"savepoint": typed})
    assert answer.status_code == 200
    assert expected in answer.content.decode()
    assert "complete" not in answer.content.decode()


@pytest.mark.parametrize(
    ("typed", "field", "expected"),
    [
        ({"name": ""}, "name", "This field is required."),
        ({"jar_id": ""}, "upload", "A program is needed"),
        ({"entry_class": ""}, "entry_class", "This field is required."),
        ({"configuration": "no colon"}, "configuration", "Line 1 is 'no colon'. Write it as key: value."),
        ({"configuration": "execution.checkpointing.intervall: 1s"}, "configuration", "a PySpark job has no such key"),
        ({"parallelism": "0"}, "parallelism", "greater than or equal to 1"),
        ({"state": "else"}, "state", "else is not one of the available choices"),
        ({"state": "savepoint"}, "savepoint", "Enter a location."),
        ({"state": "savepoint", "savepoint": "sp/1"}, "savepoint", "'sp/1' is neither an absolute path nor an address"),
        ({"checkpoints": ""}, "checkpoints", "Enter a location."),
        ({"checkpoints": "c/1"}, "checkpoints", "'c/1' is neither an absolute path nor an address"),
        ({"checkpoints": "/a\n/b"}, "checkpoints", "Write NAME=LOCATION for each query."),
        ({"checkpoints": "a=/a\na=/b"}, "checkpoints", "Query 'a' has two locations; give each query only one."),
        ({"checkpoints": "s3://key:secret@bucket/a"}, "checkpoints", "an address must not contain a password"),
    ],
)
def test_an_invalid_value_is_reported_at_its_field(
    admin: Client, cluster: Cluster, typed: dict[str, str], field: str, expected: str
) -> None:
    answer = send(admin, cluster, **typed)
    assert answer.status_code == 422
    assert expected in " ".join(answer.context["form"].errors[field])
    assert not Job.objects.exists()


def test_a_name_in_use_is_reported_at_its_field(admin: Client, cluster: Cluster, now: datetime) -> None:
    job = make.make_job(cluster)
    make.make_run(job, now)
    answer = send(admin, cluster, state="empty", name=job.name)
    assert "a name that no job of" in " ".join(answer.context["form"].errors["name"])
    assert not RestartAttempt.objects.exists()


def test_a_start_that_failed_is_changed_and_submitted_again(
    admin: Client, cluster: Cluster, httpserver: HTTPServer
) -> None:
    expect_look(httpserver, FOUND | {"query": "a"})
    typed = {"checkpoints": "a=/c/a", "configuration": "waymark.secret.PASSWORD: hunter2"}
    answer = send(admin, cluster, **typed, found=SEEN)
    again = f"{reverse('cluster-submit', args=[cluster.pk])}?again={RestartAttempt.objects.get().pk}"
    assert again not in admin.get(answer.headers["Location"]).content.decode()
    RestartAttempt.objects.update(state="failed", error="The program is no program.")
    assert again in admin.get(answer.headers["Location"]).content.decode()

    form = admin.get(again).context["form"]
    shown = {name: form[name].value() for name in form.fields if form[name].value()}
    assert "hunter2" not in str(shown)
    assert (shown["name"], shown["state"], shown["checkpoints"]) == ("orders", "checkpoint", "a=/c/a")
    assert shown["program_args"] == "/data/orders\nprod"
    assert admin.post(again, shown | {"entry_class": "orders:main", "found": SEEN}).status_code == 302
    changed = RestartAttempt.objects.latest("epoch").launch
    assert (changed["entry_class"], changed["configuration"]) == (
        "orders:main",
        {"waymark.secret.PASSWORD": "hunter2"},
    )


def test_operator_cannot_submit_a_job(operator: Client, cluster: Cluster) -> None:
    assert send(operator, cluster, state="empty").status_code == 403
    assert not Job.objects.exists()


def test_flink_cluster_refuses_pyspark_submission(admin: Client, cluster: Cluster) -> None:
    Cluster.objects.update(engine=Engine.FLINK)
    assert admin.get(reverse("cluster-submit", args=[cluster.pk])).status_code == 404


def test_an_unresponsive_storage_is_reported_at_its_field(
    admin: Client, cluster: Cluster, httpserver: HTTPServer
) -> None:
    httpserver.expect_request("/savepoints/import/validate").respond_with_json(
        {"errors": ["checkpoints: s3://b has not answered for 10 s"]}, status=503
    )
    answer = send(admin, cluster)
    assert "has not answered" in " ".join(answer.context["form"].errors["checkpoints"])
