"""A directory of event logs on the pages, in the command and in the API: added, polled, shown, and never acted on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from monitoring.models import Checkpoint, Cluster, Discovery, Engine, Job, ReportedRun, RestartAttempt
from tests.checkpointing.eventlogs.logs import QUERY, EventLog, header, progress, started
from tests.checkpointing.watched.locations import Location
from tests.dashboard.api.conftest import Caller, admin_api, caller_of
from tests.dashboard.views.test_clusters import TYPED, errors
from tests.dashboard.views.test_reported_queries import text_of
from tests.dashboard.views.test_watched_directory import ONLY_WATCHED, admin, poll

__all__ = ["admin", "admin_api", "caller_of"]


def write(root: Path) -> EventLog:
    now = round(time.time() * 1000)
    log = EventLog(root, codec="zstd", rolling=True)
    log.append(*header("<b>shop"), started(at_ms=now - 9_000), progress(0, at_ms=now - 8_000), at_ms=now)
    return log


def typed(root: Path | str) -> dict[str, str]:
    return TYPED | {"name": "lake", "discovery": "event_log", "rest_url": f"{root}/", "token": "unused"}


def test_a_directory_is_added_with_the_form_and_its_queries_are_counted(admin: Client, state_root: Path) -> None:
    write(state_root)
    assert "by event logs of Spark" in admin.get(reverse("cluster-add")).content.decode()
    assert "1 streaming query found" in text_of(admin.post(reverse("cluster-test-new"), typed(state_root)))
    page = text_of(admin.post(reverse("cluster-add"), typed(state_root), follow=True))
    assert "Waymark monitors lake: 1 streaming query found." in page
    cluster = Cluster.objects.get()
    assert (cluster.discovery, cluster.rest_url, bool(cluster.token)) == (Discovery.EVENT_LOG, str(state_root), False)
    assert not ReportedRun.objects.exists()
    poll(2)
    cluster.refresh_from_db()
    assert (cluster.engine, Job.objects.get().name) == (Engine.STREAMING, "<b>shop/orders")
    for name in ("clusters", "fleet"):
        assert admin.get(reverse(name)).status_code == 200
    assert "Spark Structured Streaming" in text_of(admin.get(reverse("cluster", args=[cluster.pk])))


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("relative/path", "is neither an absolute path nor an address"),
        ("/somewhere/else", "is not below a directory of WAYMARK_STATE_ROOTS"),
        ("{root}/missing", "does not exist, or holds nothing although queries were found there"),
    ],
)
def test_a_wrong_address_is_explained_at_its_field(admin: Client, state_root: Path, address: str, text: str) -> None:
    response = admin.post(reverse("cluster-add"), typed(address.format(root=state_root)))
    assert response.status_code == 422
    assert text in errors(response)["rest_url"][0]
    assert not Cluster.objects.exists()


def test_the_pages_show_the_figures_and_every_action_is_refused(admin: Client, state_root: Path) -> None:
    Cluster.objects.create(name="lake", discovery=Discovery.EVENT_LOG, rest_url=str(state_root))
    write(state_root)
    poll(3)
    job = Job.objects.get()
    response = admin.get(reverse("job", args=[job.pk]))
    page = text_of(response)
    assert "<b>shop" not in response.content.decode()
    assert "Run 1: 1 batches completed" in page
    assert "Spark reports no failed batches." in page
    assert "Batch 0 figures of Spark Rows read 7 Rows arriving per second – Rows processed per second 2.5" in page
    assert "addBatch 200 ms commitOffsets 30 ms" in page
    assert "addBatch 200 ms" in text_of(admin.get(reverse("checkpoint", args=[Checkpoint.objects.get().pk])))
    sent = (("job-savepoint", {}), ("job-stop", {}), ("job-cancel", {"reason": "x"}), ("job-restart", {"from": "stop"}))
    for name, body in sent:
        answer = admin.post(reverse(name, args=[job.pk]), body, follow=True)
        assert ONLY_WATCHED in answer.content.decode(), name
    assert not RestartAttempt.objects.exists()


def test_the_command_and_the_api_add_a_directory(admin_api: Caller, state_root: Path) -> None:
    write(state_root)
    call_command("cluster", "add", "first", "--event-logs", str(state_root))
    body = {"name": "second", "discovery": "event_log", "rest_url": str(state_root)}
    added = admin_api.post("/clusters", body)
    assert (added.status_code, added.json()["discovery"]) == (201, "event_log")
    assert {each.discovery for each in Cluster.objects.all()} == {Discovery.EVENT_LOG}
    poll(2)
    found = admin_api.get(f"/checkpoints/{Checkpoint.objects.first().pk}").json()  # type: ignore[union-attr]
    assert found["progress"]["durationMs"]["commitOffsets"] == 30


def test_the_page_and_the_api_name_all_clusters_that_see_the_query(
    admin: Client, admin_api: Caller, state_root: Path
) -> None:
    query = Location(state_root / "locations/orders", QUERY, start_ms=round(time.time() * 1000) - 9_000).run(0, 1)
    assert query.id
    write(state_root / "logs")
    for name, discovery in (("logs", Discovery.EVENT_LOG), ("locations", Discovery.DIRECTORY)):
        Cluster.objects.create(name=name, discovery=discovery, rest_url=f"{state_root}/{name}")
    poll(3)
    job = Job.objects.select_related("cluster").get()
    assert job.cluster.name == "logs"
    assert "also seen through locations" in text_of(admin.get(reverse("job", args=[job.pk])))
    assert admin_api.get(f"/jobs/{job.pk}").json()["sources"] == ["logs", "locations"]
