"""Channels are deleted after a confirmation, and their messages stay."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from monitoring.alerts.outbox import write
from monitoring.models import (
    AlertRule,
    AuditEntry,
    Channel,
    ChannelKind,
    Delivery,
    DeliveryState,
    Incident,
    Notification,
    NotificationState,
)
from monitoring.notify.delivery import deliver_due
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def incident(now: datetime) -> Incident:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now)
    return make.make_incident(make.make_rule(job), now)


@pytest.fixture
def channel(incident: Incident, now: datetime) -> Channel:
    made = make.make_channel("on-call", ChannelKind.WEBHOOK)
    made.secret = "s3cret"
    made.save()
    make.make_delivery(incident, made, now)
    return made


def page(client: Client, address: str) -> str:
    return client.get(address).content.decode()


def test_channel_deletion_needs_confirmation_and_keeps_messages(
    operator: Client, viewer: Client, channel: Channel, incident: Incident, now: datetime
) -> None:
    escalating = Channel.objects.create(name="first", kind="mail", escalate_to=channel, escalate_after_s=600)
    address = reverse("channel-remove", args=[channel.pk])
    assert viewer.get(address).status_code == viewer.post(address).status_code == 403
    asked = page(operator, address)
    assert "Delete the channel on-call?" in asked
    assert "first no longer escalates to a second channel" in asked
    assert operator.post(address).headers["Location"] == reverse("channels")
    assert [each.name for each in Channel.objects.all()] == ["first"]
    escalating.refresh_from_db()
    assert (escalating.escalate_to, escalating.escalate_after_s) == (None, None)
    row = Channel.with_removed.get(pk=channel.pk)
    assert (row.settings, bool(row.secret), row.enabled) == ({}, False, False)
    message = Delivery.objects.get()
    for shown in (
        reverse("deliveries"),
        reverse("delivery", args=[message.pk]),
        reverse("incident", args=[incident.pk]),
    ):
        html = page(operator, shown)
        assert "on-call" in html
        assert f'href="{reverse("channel", args=[channel.pk])}"' not in html
    assert operator.get(reverse("channel", args=[channel.pk])).status_code == 404
    assert operator.get(f"/api/v1/messages/{message.pk}").json()["channel_name"] == "on-call"
    entry = AuditEntry.objects.get(action="channel.remove")
    assert (entry.target, entry.details["before"]["secret"]) == ("channel on-call", "set")
    assert "on-call" in page(operator, reverse("audit"))


def test_only_channel_of_a_rule_cannot_be_deleted(operator: Client, channel: Channel, incident: Incident) -> None:
    rule = AlertRule.objects.get()
    rule.channels.set([channel])
    address = reverse("channel-remove", args=[channel.pk])
    assert reverse("rule", args=[rule.pk]) in page(operator, address)
    assert "Delete channel</button>" not in page(operator, address)
    assert "These rules have no other channel" in operator.post(address, follow=True).content.decode()
    by_api = operator.delete(f"/api/v1/channels/{channel.pk}")
    assert (by_api.status_code, Channel.objects.count()) == (409, 1)
    other = Channel.objects.create(name="other", kind="mail")
    rule.channels.set([channel, other])
    assert operator.delete(f"/api/v1/channels/{channel.pk}").status_code == 204
    assert list(rule.channels.all()) == [other]
    assert operator.delete(f"/api/v1/channels/{channel.pk}").status_code == 404


def test_pending_messages_of_a_deleted_channel_fail(
    operator: Client, channel: Channel, incident: Incident, now: datetime
) -> None:
    Delivery.objects.update(state=DeliveryState.PENDING)
    assert "1 waiting message is given up" in page(operator, reverse("channel-remove", args=[channel.pk]))
    Notification.objects.all().delete()
    write([incident.events.get()], now)
    operator.post(reverse("channel-remove", args=[channel.pk]))
    Notification.objects.update(due_at=now)
    deliver_due(now)
    assert [each.state for each in Notification.objects.all()] == [NotificationState.DROPPED]
    message = Delivery.objects.get()
    assert message.state == DeliveryState.DEAD
    refused = operator.post(reverse("delivery-retry", args=[message.pk]))
    assert refused.status_code == 302
    assert "was deleted: there is nowhere to send" in page(operator, reverse("deliveries"))
    assert Delivery.objects.get().state == DeliveryState.DEAD


def test_name_of_a_deleted_channel_can_be_reused(operator: Client, channel: Channel) -> None:
    operator.post(reverse("channel-remove", args=[channel.pk]))
    typed = {"name": "on-call", "to": "a@example.org", "language": "en", "group_wait_s": 10, "messages_per_10_min": 10}
    for status in (302, 422):
        answer = operator.post(reverse("channel-add", args=["mail"]), typed)
        assert answer.status_code == status
    assert "Another channel has this name" in answer.content.decode()
    assert Channel.with_removed.filter(name="on-call").count() == 2


def test_deletion_warns_that_a_configured_channel_returns(
    operator: Client, channel: Channel, settings: Settings
) -> None:
    address = reverse("channel-remove", args=[channel.pk])
    assert "Created again at the next start" not in page(operator, address)
    Channel.objects.filter(pk=channel.pk).update(name="Mail")
    settings.ALERT_MAIL = ["ops@example.org"]
    assert "Created again at the next start" in page(operator, address)
