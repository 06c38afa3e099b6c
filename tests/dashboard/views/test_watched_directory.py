"""A directory of checkpoint locations on the pages and in the API: added, polled, shown, and never acted on."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from monitoring.models import AuditEntry, Checkpoint, Cluster, Discovery, Engine, Job, RestartAttempt, Run, Savepoint
from monitoring.polling.poller import Poller
from tests.checkpointing.watched.locations import Location
from tests.dashboard.views.test_clusters import TYPED, errors

ONLY_WATCHED = "Waymark only watches this query, and cannot start, stop or save it"
ONLY_SAVED = "Waymark only watches and saves this query, and cannot start or stop it"


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("alma", password="pw-alma-1"))
    return client


def location(path: Path) -> Location:
    return Location(path, start_ms=round(time.time() * 1000) - 60_000)


def typed(root: Path, **fields: str) -> dict[str, str]:
    return TYPED | {"name": "lake", "discovery": "directory", "rest_url": str(root)} | fields


def poll(times: int) -> None:
    with Poller(timezone.now) as poller:
        for _ in range(times):
            Cluster.objects.update(next_poll_at=None, read_until=None)
            poller.start_due()
            while poller.in_flight:
                poller.serve(30.0)


@pytest.fixture
def job(state_root: Path, db: None) -> Job:
    """Return the job of a polled query, whose directory and source have markup in their names."""
    read = {"watermark": 1_700_000_000_000, "source": {"<i>topic": {"0": 7}}}
    query = location(state_root / "<b>orders").run(0, 4, **read)
    query.begin(5, **read)
    query.write("state/0/0/5.delta", "x" * 2048)
    Cluster.objects.create(name="lake", discovery=Discovery.DIRECTORY, rest_url=str(state_root))
    poll(12)
    query.run(5, 6, **read)
    poll(4)
    return Job.objects.get()


def test_a_directory_is_added_with_the_form_and_its_queries_are_counted(admin: Client, state_root: Path) -> None:
    location(state_root / "a").run(0, 1)
    location(state_root / "b").run(0, 1)
    form = admin.get(reverse("cluster-add")).content.decode()
    assert "by checkpoint locations of Spark" in form
    sent = typed(state_root, rest_url=f"{state_root}/", authentication="bearer", token="unused")
    tested = admin.post(reverse("cluster-test-new"), sent).content.decode()
    assert "2 streaming queries found" in tested
    assert "Task managers" not in tested
    page = admin.post(reverse("cluster-add"), sent, follow=True).content.decode()
    assert "Waymark monitors lake: 2 streaming queries found." in page
    cluster = Cluster.objects.get()
    assert (cluster.discovery, cluster.rest_url, cluster.scan) == (Discovery.DIRECTORY, str(state_root), {})
    assert (cluster.authentication, bool(cluster.token)) == ("none", False)
    assert AuditEntry.objects.get().details["now"]["discovery"] == "directory"
    poll(1)
    cluster.refresh_from_db()
    assert (cluster.engine, Job.objects.count()) == (Engine.STREAMING, 2)
    for name in ("clusters", "fleet"):
        assert admin.get(reverse(name)).status_code == 200
    page = admin.get(reverse("cluster", args=[cluster.pk])).content.decode()
    assert "Spark Structured Streaming" in page


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("relative/path", "is neither an absolute path nor an address"),
        ("s3://user:pass@bucket/x", "must not contain a password"),
        ("/somewhere/else", "is not below a directory of WAYMARK_STATE_ROOTS"),
        ("{root}/missing", "does not exist, or holds nothing although queries were found there"),
    ],
)
def test_an_invalid_address_is_reported_at_its_field(admin: Client, state_root: Path, address: str, text: str) -> None:
    response = admin.post(reverse("cluster-add"), typed(Path("x"), rest_url=address.format(root=state_root)))
    assert response.status_code == 422
    assert text in errors(response)["rest_url"][0]
    assert not Cluster.objects.exists()


def test_a_directory_that_is_missing_now_may_be_added(admin: Client, state_root: Path) -> None:
    admin.post(reverse("cluster-add"), typed(state_root / "later", unanswered="on"))
    assert Cluster.objects.get().rest_url == f"{state_root}/later"


def test_another_directory_begins_a_new_scan(admin: Client, state_root: Path) -> None:
    location(state_root / "a/q").run(0, 1)
    location(state_root / "b/q").run(0, 1)
    admin.post(reverse("cluster-add"), typed(state_root / "a"))
    poll(1)
    cluster = Cluster.objects.get()
    assert list(cluster.scan["found"]) == ["q"]
    admin.post(reverse("cluster-edit", args=[cluster.pk]), typed(state_root / "b"))
    cluster.refresh_from_db()
    assert cluster.scan == {}


def test_the_page_of_a_query_shows_batches_position_and_state_size(admin: Client, job: Job) -> None:
    page = admin.get(reverse("job", args=[job.pk])).content.decode()
    assert "&lt;b&gt;orders" in page
    assert "<b>orders" not in page
    assert "<i>topic" not in page
    assert "{&quot;&lt;i&gt;topic&quot;: {&quot;0&quot;: 7}}" in page
    at = datetime.fromtimestamp(1_700_000_000, UTC)
    assert f"{at:%Y-%m-%dT%H:%M:%S}" in page
    text = " ".join(re.sub("<[^>]+>", " ", page).split())
    assert "7 batches started · 0 in progress · 7 committed" in text
    assert "The files do not show failed batches." in text
    assert Checkpoint.objects.get(checkpoint_id=6).state_size == 2048
    for checkpoint in Checkpoint.objects.all()[:2]:
        assert admin.get(reverse("checkpoint", args=[checkpoint.pk])).status_code == 200
    for name in ("job-runs", "job-history", "job-summary", "job-configuration", "job-savepoints", "job-exceptions"):
        assert admin.get(reverse(name, args=[job.pk])).status_code == 200
    configuration = admin.get(reverse("job-configuration", args=[job.pk])).content.decode()
    assert "spark.sql.shuffle.partitions" in configuration


def test_a_query_that_wrote_nothing_for_long_is_unknown_and_not_stopped(
    admin: Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkpointing.watched.query.QUIET_MS", 0)
    poll(3)
    assert Run.objects.get().state == "RECONCILING"
    page = admin.get(reverse("job", args=[job.pk])).content.decode()
    assert "The files do not show whether the query runs or is stopped." in page


def test_every_action_is_refused_with_the_reason(admin: Client, job: Job) -> None:
    page = admin.get(reverse("job", args=[job.pk])).content.decode()
    for name in ("job-savepoint", "job-stop", "job-restart", "job-cancel"):
        assert f'"{reverse(name, args=[job.pk])}"' not in page
    saved = admin.post(reverse("job-savepoint", args=[job.pk]), follow=True).content.decode()
    stopped = admin.post(reverse("job-stop", args=[job.pk]), follow=True).content.decode()
    canceled = admin.post(reverse("job-cancel", args=[job.pk]), {"reason": "x"}, follow=True).content.decode()
    restarted = admin.post(reverse("job-restart", args=[job.pk]), {"from": "stop"}, follow=True).content.decode()
    assert [ONLY_WATCHED in answer for answer in (saved, stopped, canceled, restarted)] == [True] * 4
    assert not Savepoint.objects.exists()
    assert not AuditEntry.objects.filter(action__startswith="job.cancel").exists()
    assert not RestartAttempt.objects.exists()


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("relative", "is neither an absolute path nor an address"),
        ("/elsewhere", "/elsewhere is not below a directory of WAYMARK_STATE_ROOTS, so Waymark does not write there."),
        ("{root}/lake", "{root}/lake is in the watched directory {root}/lake. Waymark never writes there"),
        ("{root}/lake/savepoints", "{root}/lake/savepoints is in the watched directory {root}/lake."),
        ("{root}/other/savepoints", "{root}/other/savepoints is in the watched directory {root}/other."),
    ],
)
def test_a_wrong_directory_for_savepoints_is_explained_at_its_field(
    admin: Client, state_root: Path, target: str, text: str
) -> None:
    location(state_root / "lake/q").run(0, 1)
    Cluster.objects.create(name="other", discovery=Discovery.DIRECTORY, rest_url=f"{state_root}/other")
    sent = typed(state_root / "lake", savepoint_target=target.format(root=state_root))
    response = admin.post(reverse("cluster-add"), sent)
    assert response.status_code == 422
    assert text.format(root=state_root) in errors(response)["savepoint_target"][0]
    assert Cluster.objects.count() == 1


def test_a_watched_directory_must_not_contain_savepoints_of_another_one(admin: Client, state_root: Path) -> None:
    location(state_root / "q").run(0, 1)
    place = {"rest_url": f"{state_root}/a", "savepoint_target": f"{state_root}/savepoints"}
    Cluster.objects.create(name="other", discovery=Discovery.DIRECTORY, **place)
    response = admin.post(reverse("cluster-add"), typed(state_root))
    assert f"contains {state_root}/savepoints, where Waymark stores savepoints" in errors(response)["rest_url"][0]


def test_with_a_directory_for_savepoints_a_query_is_saved_and_still_never_stopped(
    admin: Client, job: Job, state_root: Path
) -> None:
    Cluster.objects.update(savepoint_target=f"{state_root.parent}/savepoints")
    page = admin.get(reverse("job", args=[job.pk])).content.decode()
    names = ("job-savepoint", "job-stop", "job-restart", "job-cancel")
    assert [name for name in names if f'"{reverse(name, args=[job.pk])}"' in page] == ["job-savepoint"]
    stopped = admin.post(reverse("job-stop", args=[job.pk]), follow=True).content.decode()
    canceled = admin.post(reverse("job-cancel", args=[job.pk]), {"reason": "x"}, follow=True).content.decode()
    restarted = admin.post(reverse("job-restart", args=[job.pk]), {"from": "stop"}, follow=True).content.decode()
    assert [ONLY_SAVED in answer for answer in (stopped, canceled, restarted)] == [True] * 3
    assert not Savepoint.objects.exists()

    admin.post(reverse("job-savepoint", args=[job.pk]), follow=True)
    savepoint = Savepoint.objects.get()
    assert (savepoint.state, savepoint.requested_by) == ("requested", "alma")
    assert AuditEntry.objects.filter(action="savepoint.request").count() == 1
    savepoint.state, savepoint.path = "completed", "/savepoints/savepoint-1"
    savepoint.save()
    for address in (reverse("job-savepoints", args=[job.pk]), reverse("savepoint", args=[savepoint.pk])):
        page = admin.get(address).content.decode()
        assert "/savepoints/savepoint-1" in page
        assert "Restart from this savepoint" not in page
    assert "start the program from this savepoint" in page
    cluster = admin.get(reverse("cluster", args=[job.cluster_id])).content.decode()
    assert f"{state_root.parent}/savepoints" in cluster
