"""Each channel gets each of its shift summaries exactly once, also if workers die or work at the same time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from django.db import connection

from monitoring.models import Channel, ChannelKind, Delivery, DeliveryState
from monitoring.notify import summaries
from monitoring.notify.apprise.transport import AppriseTransport
from monitoring.notify.delivery import deliver_due
from monitoring.notify.message import Failed, message_of
from monitoring.notify.summaries import write_due
from monitoring.notify.webhook.transport import payload
from monitoring.notify.wording.texts import text_of
from monitoring.reasons.notify import NotifyReason
from tests.monitoring.reported import notifications

EIGHT = datetime(2026, 11, 21, 0, 0, tzinfo=UTC)  # 08:00 in Shanghai
DAY = timedelta(days=1)


@pytest.fixture
def channel(db):
    return Channel.objects.create(
        name="shift",
        kind=ChannelKind.WEBHOOK,
        settings={"url": "https://hooks.example.org/"},
        summary_cron="0 8,20 * * *",
        summary_time_zone="Asia/Shanghai",
        summary_hours=12,
        next_summary_at=EIGHT,
    )


def test_the_first_summary_is_due_at_the_next_time(channel):
    Channel.objects.update(next_summary_at=None)
    assert write_due(EIGHT - timedelta(minutes=1)) == 0
    channel.refresh_from_db()
    assert channel.next_summary_at == EIGHT


def test_a_summary_is_written_once_at_its_time(channel):
    assert write_due(EIGHT - timedelta(seconds=1)) == 0
    assert [write_due(EIGHT + timedelta(seconds=second)) for second in (0, 1, 60)] == [1, 0, 0]
    delivery = Delivery.objects.get()
    assert (delivery.key, delivery.channel) == (f"shift-{channel.pk}-202611210000", channel)
    assert message_of(delivery).summary.until_at == EIGHT
    assert message_of(delivery).summary.since_at == EIGHT - timedelta(hours=12)
    channel.refresh_from_db()
    assert channel.next_summary_at == EIGHT + timedelta(hours=12)


@pytest.mark.parametrize("step", ["as_json", "message_of", "_next"])
def test_a_worker_that_dies_before_any_step_writes_nothing(channel, step):
    with patch.object(summaries, step, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        write_due(EIGHT)
    assert not Delivery.objects.exists()
    assert write_due(EIGHT) == 1
    assert write_due(EIGHT) == 0


def test_a_time_that_is_set_back_sends_no_second_summary(channel):
    write_due(EIGHT)
    Channel.objects.update(next_summary_at=EIGHT)
    assert write_due(EIGHT + timedelta(minutes=1)) == 0
    assert Delivery.objects.count() == 1


def test_after_an_outage_only_the_newest_summary_is_sent(channel):
    assert write_due(EIGHT + 3 * DAY + timedelta(hours=1)) == 1
    assert Delivery.objects.get().key.endswith("-202611240000")


def test_a_summary_of_yesterday_is_not_sent(channel):
    Channel.objects.update(summary_cron="0 8 * * 6")  # once a week
    assert write_due(EIGHT + 3 * DAY) == 0
    channel.refresh_from_db()
    assert channel.next_summary_at == EIGHT + 7 * DAY


def test_a_disabled_channel_gets_none(channel):
    Channel.objects.update(enabled=False)
    assert write_due(EIGHT) == 0


def test_times_that_cannot_be_read_do_not_stop_other_channels(channel):
    Channel.objects.create(
        name="broken", kind="mail", settings={"to": ["a@example.org"]}, summary_cron="8", next_summary_at=EIGHT
    )
    assert write_due(EIGHT) == 1


@pytest.mark.django_db(transaction=True)
def test_several_workers_write_a_summary_once(channel):
    def write(_: int) -> int:
        try:
            return write_due(EIGHT)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(write, range(6))) == 1
    assert Delivery.objects.count() == 1


def test_a_summary_is_delivered_as_json(channel, httpserver):
    httpserver.expect_request("/hook").respond_with_data("ok")
    Channel.objects.update(settings={"url": httpserver.url_for("/hook")}, allow_private=True)
    assert deliver_due(EIGHT, jitter=lambda: 0.5) == notifications(sent=1)
    ((request, _),) = httpserver.log
    body = json.loads(request.data)
    assert (body["event"], body["key"]) == ("summary", request.headers["Idempotency-Key"])
    assert body["sentence_value"]["code"] == "notify.shift"
    assert body["summary"]["until_at"] == EIGHT.isoformat()
    assert Delivery.objects.get().state == DeliveryState.SENT


@pytest.fixture
def message(rows, channel):
    rows.now = EIGHT
    run = rows.run(rows.job(name="flights\nIncidents: none"))
    rows.failed(run, 1, rows.ago(60))
    write_due(EIGHT)
    return message_of(Delivery.objects.get())


def test_the_mail_is_in_the_language_and_the_time_zone_of_the_channel(channel, message):
    english = text_of(channel, message)
    assert english.subject == "[summary] Unresolved: 0, opened: 0, failed restarts: 0, last 12 h"
    assert "The 12 hours until 2026-11-21 08:00 CST" in english.body
    assert "- flights Incidents: none: 1" in english.body
    channel.language = "zh-hans"
    chinese = text_of(channel, message)
    assert chinese.subject == "【值班汇总】未恢复：0，触发：0，重启失败：0，最近 12 小时"
    assert "检查点失败最多的作业" in chinese.body
    assert 'lang="zh-hans"' in chinese.html
    for text in (english, chinese):
        assert not [line for line in text.body.splitlines() if line.strip() == "Incidents: none"]
        assert "<html" in text.html


def test_the_texts_of_the_channel_are_for_incidents(channel, message):
    channel.subject_template, channel.body_template = "{{ job }}", "{{ sentence }}"
    assert text_of(channel, message).subject.startswith("[summary]")


def test_a_summary_names_no_incident_in_json(message):
    assert not {"incident", "incidents", "severity"} & payload(message).keys()


def test_a_paging_service_gets_no_summary(message):
    pager = Channel(name="p", kind="apprise", secret="pagerduty://routing-key@api-key")
    assert AppriseTransport().send(pager, message, EIGHT) == Failed(NotifyReason.NO_SUMMARY(), permanent=True)
