"""Each client of the health endpoints sees what it may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from redis import Redis

from dashboard.logs import exclude_health_probe
from monitoring import broker
from monitoring.models import Cluster, Tick
from monitoring.reasons.archive import ArchiveReason
from monitoring.reasons.columns import columns
from monitoring.selfwatch.own_facts import periods


@pytest.fixture
def redis(redis_url: str, settings: Any) -> Iterator[Redis]:
    settings.CELERY_BROKER_URL = redis_url
    with broker.connect() as client:
        client.flushall()
        yield client
        client.flushall()


@pytest.fixture
def seeing(db: None, redis: Redis) -> None:
    now = timezone.now()
    for task in periods():
        Tick.objects.create(task=task, ended_at=now, took_ms=12, runs=4)
    broker.write_heartbeat(redis, "beat", leads=True)
    broker.write_heartbeat(redis, "worker", threads=4, taken=1200)


def test_health_is_200_while_waymark_can_monitor(seeing: None, stranger: Client) -> None:
    answer = stranger.get(reverse("health"))
    assert (answer.status_code, answer.json()) == (200, {"status": "healthy", "problems": [], "warnings": []})


def test_health_is_503_with_the_problems_while_waymark_cannot_monitor(
    seeing: None, redis: Redis, stranger: Client
) -> None:
    redis.flushall()
    answer = stranger.get(reverse("health"))
    assert answer.status_code == 503
    assert answer.json()["problems"] == [
        {"part": "beat", "text": "No scheduler (beat) is running, so no tasks are started."},
        {"part": "worker", "text": "No worker processes tasks."},
    ]


def test_remote_clients_see_only_the_names_of_components(seeing: None, redis: Redis, stranger: Client) -> None:
    redis.flushall()
    answer = stranger.get(reverse("health"), REMOTE_ADDR="10.1.2.3")
    assert (answer.status_code, answer.json()["problems"]) == (503, [{"part": "beat"}, {"part": "worker"}])


@pytest.mark.django_db(transaction=True)
def test_health_endpoints_respond_without_the_database(redis: Redis, stranger: Client) -> None:
    connection.close()
    good = connection.settings_dict["HOST"]
    connection.settings_dict["HOST"] = "/nowhere"
    try:
        alive, health = stranger.get(reverse("healthz")), stranger.get(reverse("health"))
        metrics = stranger.get(reverse("metrics"))
    finally:
        connection.settings_dict["HOST"] = good
    assert alive.json() == {"status": "up"}, "killing this process would bring no database back"
    assert (health.status_code, health.json()["problems"][0]["part"]) == (503, "database")
    assert b"waymark_database_up 0.0" in metrics.content


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        ({"REMOTE_ADDR": "127.0.0.1"}, 200),
        ({"REMOTE_ADDR": "::1"}, 200),
        ({"REMOTE_ADDR": "10.1.2.3"}, 403),
        ({"REMOTE_ADDR": ""}, 403),
        ({"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "10.1.2.3"}, 403),
        ({"REMOTE_ADDR": "127.0.0.1", "HTTP_FORWARDED": "for=10.1.2.3"}, 403),
    ],
)
def test_without_a_token_only_local_clients_may_read_metrics(
    seeing: None, stranger: Client, request_of: dict[str, str], status: int
) -> None:
    answer = stranger.get(reverse("metrics"), **request_of)
    assert answer.status_code == status
    assert (b"waymark_healthy 1.0" in answer.content) is (status == 200)


@pytest.mark.parametrize(("given", "status"), [("Bearer right", 200), ("Bearer wrong", 403), ("right", 403), ("", 403)])
def test_with_a_token_every_client_needs_it(
    seeing: None, stranger: Client, settings: Any, given: str, status: int
) -> None:
    settings.METRICS_TOKEN = "right"
    for address in ("127.0.0.1", "10.1.2.3"):
        answer = stranger.get(reverse("metrics"), HTTP_AUTHORIZATION=given, REMOTE_ADDR=address)
        assert answer.status_code == status


def test_the_page_shows_the_problems_of_the_endpoint(
    seeing: None, redis: Redis, viewer: Client, django_assert_max_num_queries: Callable[[int], Any]
) -> None:
    with django_assert_max_num_queries(17):  # one of the queries reads the account's grants
        page = viewer.get(reverse("system-health")).content.decode()
    assert "All systems operational." in page
    assert "4 threads, 1,200 tasks since the start" in page
    redis.flushall()
    page = viewer.get(reverse("system-health")).content.decode()
    assert "Waymark cannot monitor the jobs." in page
    assert "No scheduler (beat) is running, so no tasks are started." in page


def test_the_page_is_in_the_readers_language_and_the_endpoint_in_english(
    seeing: None, redis: Redis, viewer: Client, stranger: Client
) -> None:
    Tick.objects.filter(task="poll_clusters").update(
        ended_at=timezone.now() - timedelta(minutes=9),
        failed_at=timezone.now(),
        **columns("failure", ArchiveReason.UNUSABLE(problem="disk.")),
    )
    for reader in (viewer, stranger):
        reader.cookies["django_language"] = "zh-hans"
    page = viewer.get(reverse("system-health")).content.decode()
    assert "任务“轮询集群”上次执行完毕是在 9 分钟" in page
    assert "前；执行失败：无法写入或读取归档：disk。" in page
    [problem] = stranger.get(reverse("health")).json()["problems"]
    assert problem["text"].startswith("The task “poll clusters” last completed 9 min")
    assert problem["text"].endswith(" ago; it fails: The archive cannot be written or read: disk.")


def test_the_page_asks_to_log_in(stranger: Client, db: None) -> None:
    assert stranger.get(reverse("system-health")).status_code == 302


def test_failed_health_probes_are_not_logged(db: None, redis: Redis, stranger: Client, caplog: Any) -> None:
    assert stranger.get(reverse("health")).status_code == 503
    assert stranger.get("/nowhere/").status_code in (302, 404)
    result = {
        record.getMessage(): exclude_health_probe(record)
        for record in caplog.records
        if record.name == "django.request"
    }
    assert result["Service Unavailable: /health"] is False
    assert all(shown for message, shown in result.items() if "/health" not in message)


class TestTheHistorysPipeline:
    """The health page has a row for the pipeline if there is an embedded job manager."""

    @pytest.fixture
    def shown(self, seeing: None, operator: Client, settings: Any) -> Callable[[], str]:
        settings.EMBEDDED_CLUSTER_URL = "http://127.0.0.1:1"
        settings.HISTORY_PIPELINE = True
        self.cluster = Cluster.objects.create(name="waymark", rest_url="http://127.0.0.1:1")
        return lambda: operator.get(reverse("system-health")).content.decode()

    def test_a_running_history_pipeline_is_active(self, shown: Callable[[], str]) -> None:
        assert ">active</span>" in shown()

    def test_a_stopped_history_pipeline_is_not_running(self, shown: Callable[[], str]) -> None:
        Cluster.objects.update(created_at=timezone.now() - timedelta(hours=1))
        page = shown()
        assert "not running" in page
        assert "so long charts load slowly: it was never started." in page

    def test_a_disabled_history_pipeline_names_its_setting(self, shown: Callable[[], str], settings: Any) -> None:
        settings.HISTORY_PIPELINE = False
        assert "WAYMARK_HISTORY_PIPELINE is off" in shown()

    def test_without_an_embedded_job_manager_the_history_pipeline_is_not_shown(
        self, shown: Callable[[], str], settings: Any
    ) -> None:
        settings.EMBEDDED_CLUSTER_URL = ""
        assert ">active</span>" not in shown()
