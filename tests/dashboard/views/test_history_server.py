"""The address of the History Server of a Flink cluster: in the form, in the API, as code and in the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.access.roles import Role
from dashboard.as_code.plan import plan
from monitoring.engine.connection import bearer
from monitoring.models import AuditEntry, Cluster, Engine, RunState
from monitoring.reasons.columns import store
from monitoring.reasons.engines import EngineReason
from tests.dashboard import builders as make
from tests.dashboard.views.test_clusters import admin, errors, flink, typed
from tests.dashboard.views.test_job_header import flink_pages
from tests.monitoring.engine.flink_server import FlinkServer, running

__all__ = ["admin", "flink"]
HISTORY = json.dumps({"flink-version": "2.3.0", "features": {"web-submit": False, "web-history": True}})


@pytest.fixture
def history() -> Iterator[FlinkServer]:
    with running() as server:
        server.instead("/config", HISTORY)
        yield server


def test_a_history_server_is_tested_stored_shown_and_audited(
    admin: Client, flink: FlinkServer, history: FlinkServer
) -> None:
    flink.needs = history.needs = {"Authorization": bearer("s3cret")}
    sent = typed(flink.url, history_server=f"{history.url}/", authentication="bearer", token="s3cret")
    page = admin.post(reverse("cluster-add"), sent, follow=True).content.decode()
    assert Cluster.objects.get().history_server == history.url
    assert history.url in page
    assert AuditEntry.objects.get().details["now"]["history_server"] == history.url
    assert history.asked == ["/config"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("history:8082", "must begin with http"),
        ("http://169.254.169.254", "the address at which clouds issue credentials"),
        ("http://127.0.0.1:1/?x=1", "cannot contain ? or #"),
        ("http://127.0.0.1:1", "nothing listens there"),
        ("http://a/" + "x" * 500, "at most 500 characters"),
    ],
)
def test_an_address_that_cannot_be_used_is_named_at_its_field(
    admin: Client, flink: FlinkServer, address: str, expected: str
) -> None:
    response = admin.post(reverse("cluster-add"), typed(flink.url, history_server=address))
    assert response.status_code == 422
    assert expected in errors(response)["history_server"][0]
    assert not Cluster.objects.exists()


@pytest.mark.parametrize("status", [200, 404])
def test_another_server_is_refused(admin: Client, flink: FlinkServer, history: FlinkServer, status: int) -> None:
    history.instead("/config", json.dumps({"features": {"web-submit": True}}), status)
    sent = typed(flink.url, history_server=history.url, unanswered="on")
    assert "not Flink's History Server" in errors(admin.post(reverse("cluster-add"), sent))["history_server"][0]


def test_a_history_server_that_is_down_is_stored_explicitly(admin: Client, flink: FlinkServer) -> None:
    sent = typed(flink.url, history_server="http://127.0.0.1:1", unanswered="on")
    admin.post(reverse("cluster-add"), sent)
    assert Cluster.objects.get().history_server == "http://127.0.0.1:1"


def test_a_stored_secret_is_not_sent_to_another_history_server(
    admin: Client, flink: FlinkServer, history: FlinkServer
) -> None:
    cluster = Cluster.objects.create(name="prod", rest_url=flink.url, authentication="bearer", token="s3cret")
    sent = typed(flink.url, history_server=history.url, authentication="bearer")
    for name in ("cluster-edit", "cluster-test-typed"):
        page = admin.post(reverse(name, args=[cluster.pk]), sent).content.decode()
        assert "The address has changed. Enter the secret again" in page
    assert history.asked == []
    admin.post(reverse("cluster-edit", args=[cluster.pk]), sent | {"token": "s3cret"})
    assert Cluster.objects.get().history_server == history.url
    admin.post(reverse("cluster-edit", args=[cluster.pk]), sent | {"poll_interval_s": "7"})
    assert (Cluster.objects.get().poll_interval_s, Cluster.objects.get().token.reveal()) == (7, "s3cret")


def test_a_secret_over_plain_http_to_the_history_server_causes_a_warning(admin: Client) -> None:
    addresses = {"rest_url": "https://flink.invalid", "history_server": "http://history.invalid:8082"}
    sent = typed("", authentication="bearer", token="s3cret", unanswered="on") | addresses
    page = admin.post(reverse("cluster-add"), sent, follow=True).content.decode()
    assert "The token is sent to history.invalid without encryption." in page


def test_watched_queries_have_no_history_server(admin: Client) -> None:
    sent = typed("", discovery="agent", history_server="history")
    admin.post(reverse("cluster-add"), sent)
    assert Cluster.objects.get().history_server == ""


def test_a_history_server_is_configuration_as_code(db: None) -> None:
    text = "clusters:\n  - name: east\n    rest_url: http://east:8081\n    history_server: {}\n"
    assert not plan(text.format("http://history:8082/"), Role.ADMIN).problems
    [problem] = plan(text.format("ftp://history"), Role.ADMIN).problems
    assert "history_server" in str(problem)


def test_the_flink_link_of_an_ended_cluster_leads_to_its_history_server(viewer: Client, now: datetime) -> None:
    history = "http://history.example:8082"
    cluster = make.make_cluster(now, "flink", engine=Engine.FLINK, history_server=history, unreachable_since=now)
    job = make.make_job(cluster)
    run = make.make_run(job, now, state=RunState.FAILED, ended_at=now)
    assert not any(page.startswith(history) for page in flink_pages(viewer, job))
    store(cluster, "last_error", EngineReason.CLUSTER_ENDED())
    cluster.save()
    assert flink_pages(viewer, job) == [f"{history}/#/job/completed/{run.engine_job_id}/overview"]
