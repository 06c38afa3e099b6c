import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection

from monitoring.alerts.incidents import open_incident
from monitoring.models import AlertRule, Channel, Delivery, DeliveryState, IncidentKind, Notification, Runbook, Severity
from monitoring.notify import delivery as delivery_module
from monitoring.notify.delivery import CLAIM, FIRST_WAIT_S, LONGEST_WAIT_S, MAX_TRIES, deliver_due, next_wait
from monitoring.notify.due_notifications import gather_due
from monitoring.notify.message import Failed
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.work import WorkReason
from tests.monitoring.reported import NOTHING, notifications


@pytest.fixture
def hook(rows, httpserver):
    return Channel.objects.create(
        name="hook", kind="webhook", settings={"url": httpserver.url_for("/hook")}, allow_private=True, group_wait_s=0
    )


@pytest.fixture
def opened(rows, now):
    """Return a function that opens an incident whose rule notifies the given channels."""

    def incident(*channels, rule=True):
        job = rows.job(name="flights")
        made = AlertRule.objects.create(job=job) if rule else None
        if made:
            made.channels.set(channels)
        kind = IncidentKind.FAILED_IN_WINDOW if rule else IncidentKind.NOT_RESTARTED
        return open_incident(job, made, kind, Severity.WARNING, "It fails.", {"count": 3}, now)

    return incident


def deliver(now):
    return deliver_due(now, jitter=lambda: 0.5)


def test_a_rule_with_channels_notifies_only_the_enabled_ones(opened, hook):
    off = Channel.objects.create(
        name="off", kind="mail", settings={"to": ["a@example.org"]}, group_wait_s=0, enabled=False
    )
    Channel.objects.create(name="other", kind="mail", settings={"to": ["a@example.org"]}, group_wait_s=0)
    opened(hook, off)
    assert [each.channel for each in Notification.objects.all()] == [hook]


def test_a_rule_without_channels_notifies_all(opened, hook):
    other = Channel.objects.create(name="other", kind="mail", settings={"to": ["a@example.org"]}, group_wait_s=0)
    opened()
    assert {each.channel for each in Notification.objects.all()} == {hook, other}


def test_a_message_has_the_runbooks_of_the_rule_and_of_the_labels(opened, hook, httpserver, now):
    httpserver.expect_request("/hook").respond_with_data("ok")
    opened(hook)
    AlertRule.objects.update(runbook="https://wiki.example.org/rule")
    Runbook.objects.create(selector="job=flights", text="Call ada.")
    gather_due(now)
    deliver(now)
    output = json.loads(httpserver.log[0][0].data)
    assert output["runbook"] == "https://wiki.example.org/rule · Call ada."


def test_an_incident_without_a_rule_notifies_all(opened, hook):
    opened(rule=False)
    assert Notification.objects.get().channel == hook


def test_a_sent_message_is_marked_with_the_answer_of_the_receiver(opened, hook, httpserver, now):
    httpserver.expect_request("/hook").respond_with_data("thanks")
    opened()

    assert deliver(now) == notifications(sent=1)

    sent = Delivery.objects.get()
    assert (sent.state, sent.attempts, sent.sent_at) == (DeliveryState.SENT, 1, now)
    assert [(each.at, each.outcome, each.answer) for each in sent.tries.all()] == [(now, "sent", "200 OK: thanks")]
    assert deliver(now + timedelta(days=1)) == NOTHING


def test_a_failed_try_is_repeated_after_a_wait_that_doubles(opened, hook, httpserver, now):
    httpserver.expect_request("/hook").respond_with_data("oh no", 500)
    opened()

    assert deliver(now) == notifications(retried=1)
    assert deliver(now + timedelta(seconds=9)) == NOTHING
    deliver(now + timedelta(seconds=10))

    waiting = Delivery.objects.get()
    assert waiting.next_try_at == now + timedelta(seconds=10 + 20)
    assert waiting.tries.count() == waiting.attempts == 2


def test_a_channel_that_is_down_for_an_hour_gets_its_message_afterwards(opened, hook, httpserver, now):
    opened()
    gather_due(now)
    moment, end = now, now + timedelta(hours=1)
    while moment < end:
        httpserver.clear()
        httpserver.expect_request("/hook").respond_with_data("down", 503)
        deliver(moment)
        moment = Delivery.objects.get().next_try_at
    httpserver.clear()
    httpserver.expect_request("/hook").respond_with_data("up")
    assert deliver(moment) == notifications(sent=1)


def test_a_message_is_not_retried_after_the_last_attempt(opened, hook, httpserver, now):
    httpserver.expect_request("/hook").respond_with_data("oh no", 500)
    opened()
    gather_due(now)
    Delivery.objects.update(attempts=MAX_TRIES - 1)

    assert deliver(now) == notifications(given_up=1)
    assert Delivery.objects.get().state == DeliveryState.DEAD


def test_a_permanent_refusal_is_not_retried(opened, hook, httpserver, now):
    httpserver.expect_request("/hook").respond_with_data("no such hook", 404)
    opened()
    assert deliver(now) == notifications(given_up=1)


def test_the_receivers_wish_to_wait_is_honoured(opened, hook, httpserver, now):
    httpserver.expect_request("/hook").respond_with_data("", 429, headers={"Retry-After": "120"})
    opened()
    deliver(now)
    assert Delivery.objects.get().next_try_at == now + timedelta(seconds=120)


def test_messages_for_a_disabled_channel_are_not_retried(opened, hook, now):
    opened()
    gather_due(now)
    Channel.objects.update(enabled=False)
    assert deliver(now) == notifications(given_up=1)
    given_up = Delivery.objects.get().tries.get()
    assert (given_up.answer, given_up.answer_value) == ("The channel was switched off.", NotifyReason.SWITCHED_OFF())


def test_a_worker_that_died_after_sending_causes_a_second_send_with_the_same_key(
    opened, hook, httpserver, now, monkeypatch
):
    httpserver.expect_request("/hook").respond_with_data("ok")
    opened()

    class Killed(BaseException):
        pass

    def die(*_args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(delivery_module, "mark", die)
        with pytest.raises(Killed):
            deliver(now)

    assert deliver(now + CLAIM - timedelta(seconds=1)) == NOTHING
    assert deliver(now + CLAIM) == notifications(sent=1)
    assert len({request.headers["Idempotency-Key"] for request, _ in httpserver.log}) == 1
    assert len(httpserver.log) == 2


def test_a_worker_that_was_overtaken_does_not_undo_the_others_mark(opened, hook, now):
    opened()
    gather_due(now)
    claimed = delivery_module._claim(Delivery.objects.select_related("channel").get(), now)
    Delivery.objects.update(state=DeliveryState.SENT, claimed_until=None)

    assert delivery_module.mark(claimed, Failed("late"), now, lambda: 0.5) is WorkReason.OVERTAKEN
    assert Delivery.objects.get().state == DeliveryState.SENT


@pytest.mark.django_db(transaction=True)
def test_four_workers_at_once_send_each_message_once(opened, rows, httpserver, now):
    for number in range(10):
        url = httpserver.url_for(f"/hook/{number}")
        Channel.objects.create(
            name=f"hook {number}", kind="webhook", settings={"url": url}, allow_private=True, group_wait_s=0
        )
        httpserver.expect_request(f"/hook/{number}").respond_with_data("ok")
    opened()

    def work(_worker):
        try:
            return deliver(now)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert sorted(request.path for request, _ in httpserver.log) == sorted(f"/hook/{number}" for number in range(10))
    assert set(Delivery.objects.values_list("state", flat=True)) == {DeliveryState.SENT}


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("tries", range(1, MAX_TRIES))
def test_waits_double_within_a_fifth_and_never_pass_an_hour(tries, chance):
    nominal = min(FIRST_WAIT_S * 2 ** (tries - 1), LONGEST_WAIT_S)
    wait = next_wait(tries, None, lambda: chance).total_seconds()
    assert 0.8 * nominal <= wait <= 1.2 * nominal
