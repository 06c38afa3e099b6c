"""The subjects of messages on pages are in the language of the page."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import translation

from dashboard.queries.messages import subjects
from monitoring.models import ChannelKind, Delivery, Severity
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def deliveries(now: datetime) -> list[Delivery]:
    """Return a message about one incident, one about a warning and then a critical incident, and a test message."""
    cluster = make.make_cluster(now)
    channel = make.make_channel("on-call", ChannelKind.WEBHOOK)
    rules = [make.make_rule(make.make_job(cluster, name)) for name in ("flights", "clicks", "orders")]
    single, several = (make.make_delivery(make.make_incident(rule, now), channel, now) for rule in rules[:2])
    critical = make.make_delivery(make.make_incident(rules[2], now, severity=Severity.CRITICAL), channel, now)
    critical.notifications.update(delivery=several)
    critical.delete()
    test = Delivery.objects.create(
        channel=channel, key="test", subject="[test] by olga", is_test=True, created_at=now, next_try_at=now
    )
    return [single, several, test]


def test_english_subjects_are_the_stored_ones(deliveries: list[Delivery], django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert subjects(deliveries) == {each.pk: each.subject for each in deliveries}


def test_chinese_subjects_are_those_of_the_template(deliveries: list[Delivery], django_assert_num_queries: Any) -> None:
    with translation.override("zh-hans"), django_assert_num_queries(2):
        single, several, test = subjects(deliveries).values()
    assert single.startswith("【警告】flights 在 15 分钟内有 4 个检查点失败（阈值 3）")
    assert several.startswith("【严重】集群 waymark 共 2 个告警：orders 在 15 分钟内有 4 个检查点失败")
    assert test == "[test] by olga"


def test_pages_show_subjects_in_the_readers_language(viewer: Client, deliveries: list[Delivery]) -> None:
    single = deliveries[0]
    addresses = (reverse("deliveries"), reverse("delivery", args=[single.pk]))
    for address in addresses:
        assert "[warning] 4 checkpoints of flights failed" in viewer.get(address).content.decode()
    viewer.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    for address in addresses:
        assert "【警告】flights 在 15 分钟内有 4 个检查点失败" in viewer.get(address).content.decode()
