"""No notification is lost or sent twice if workers die or compete, or a cluster dies with ten thousand jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.db import connection, transaction
from werkzeug import Response

from monitoring.alerts.incidents import Ending, Opening, open_incidents, resolve_incidents
from monitoring.models import Channel, Delivery, DeliveryState, Incident, IncidentKind, Job, Notification, Severity
from monitoring.notify.delivery import CLAIM, deliver_due
from monitoring.notify.message import message_of
from tests.monitoring.reported import NOTHING, notifications
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

PREAMBLE = """
import os, sys, datetime
os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"
import django
django.setup()
from django.db import transaction
from monitoring.alerts.incidents import Opening, open_incidents
from monitoring.notify.delivery import deliver_due
from monitoring.notify.due_notifications import gather_due
from monitoring.models import Job, Severity
now = datetime.datetime.fromisoformat(sys.argv[1])
def reached(what):
    print(what, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def worker(now):
    """Return a function that starts a process on the test's database. The processes are ended after the test."""
    started = []
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()

    def start(code):
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + code, now.isoformat()],
            env={**os.environ, "DATABASE_URL": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def reached(process, what):
    assert process.stdout.readline().strip() == what


def kill(process):
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL


@pytest.fixture
def hook(rows, httpserver):
    settings = {"url": httpserver.url_for("/hook")}
    return Channel.objects.create(name="hook", kind="webhook", settings=settings, allow_private=True, group_wait_s=0)


def keys(httpserver):
    return Counter(request.headers["Idempotency-Key"] for request, _ in httpserver.log)


OPEN = """
with transaction.atomic():
    open_incidents([Opening("job_failed", Severity.CRITICAL, "flights failed.", job=Job.objects.get())], now)
    {before}
{after}
"""


def test_a_worker_killed_before_the_incident_is_committed_leaves_neither_incident_nor_message(worker, rows, hook, now):
    rows.job(name="flights")
    process = worker(OPEN.format(before="reached('opened')", after=""))
    reached(process, "opened")
    kill(process)
    assert deliver_due(now) == NOTHING
    assert not Incident.objects.exists()


def test_a_worker_killed_between_incident_and_send_leaves_a_message_that_is_sent_once(
    worker, rows, hook, httpserver, now
):
    httpserver.expect_request("/hook").respond_with_data("ok")
    rows.job(name="flights")
    process = worker(OPEN.format(before="pass", after="gather_due(now)\nreached('gathered')"))
    reached(process, "gathered")
    kill(process)

    assert deliver_due(now) == notifications(sent=1)
    assert list(keys(httpserver).values()) == [1]


def test_a_worker_killed_between_send_and_mark_sends_again_under_the_same_key(worker, rows, hook, httpserver, now):
    job = rows.job(name="flights")
    with transaction.atomic():
        open_incidents([Opening("job_failed", Severity.CRITICAL, "flights failed.", job=job)], now)
    process = worker("deliver_due(now)")

    def take_and_kill(_request):
        process.send_signal(signal.SIGKILL)
        return Response("ok")

    httpserver.expect_ordered_request("/hook").respond_with_handler(take_and_kill)
    httpserver.expect_ordered_request("/hook").respond_with_data("ok")
    assert process.wait(60) == -signal.SIGKILL
    assert Delivery.objects.get().state == DeliveryState.PENDING

    assert deliver_due(now + CLAIM - timedelta(seconds=1)) == NOTHING
    assert deliver_due(now + CLAIM) == notifications(sent=1)
    assert list(keys(httpserver).values()) == [2]


def test_two_concurrent_workers_send_each_message_once(worker, rows, httpserver, now):
    httpserver.expect_request("/hook").respond_with_data("ok")
    for number in range(20):
        settings = {"url": httpserver.url_for("/hook")}
        Channel.objects.create(
            name=f"hook {number}", kind="webhook", settings=settings, allow_private=True, group_wait_s=0
        )
    job = rows.job(name="flights")
    with transaction.atomic():
        open_incidents([Opening("job_failed", Severity.CRITICAL, "flights failed.", job=job)], now)
    code = "reached('ready')\nwhile deliver_due(now).done: pass\n"
    pair = [worker(code), worker(code)]
    for process in pair:
        reached(process, "ready")
    for process in pair:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in pair:
        assert process.wait(60) == 0
    # A worker that finds a channel claimed by the other worker ends. Its own claims are sent.
    eventually("all is said", lambda: deliver_due(now).is_quiet, 60)
    assert sorted(keys(httpserver).values()) == [1] * 20
    assert set(Delivery.objects.values_list("state", flat=True)) == {DeliveryState.SENT}


@pytest.mark.nightly
def test_a_dead_cluster_with_ten_thousand_jobs_is_one_incident_to_people_and_one_message(rows, mail_sink, now):
    Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.org"]})
    cluster = rows.cluster(name="production")
    jobs = Job.objects.bulk_create([Job(cluster=cluster, name=f"job-{n}") for n in range(10_000)], batch_size=1000)
    failed = [Opening(IncidentKind.FAILED_IN_WINDOW, Severity.WARNING, f"{job} fails.", job=job) for job in jobs]
    silent = Opening(IncidentKind.CLUSTER_UNREACHABLE, Severity.CRITICAL, "production is silent.", cluster=cluster)
    with transaction.atomic():
        open_incidents(failed[:2000], now)  # the rules that were evaluated before the cluster counted as dead
    with transaction.atomic():
        (parent,) = open_incidents([silent], now + timedelta(seconds=5))
    with transaction.atomic():
        open_incidents(failed[2000:], now + timedelta(seconds=8))

    for seconds in (10, 20, 60, 600):
        deliver_due(now + timedelta(seconds=seconds))

    assert [mail["Subject"] for mail in mail_sink.mails] == ["[critical] production is silent"]
    assert Notification.objects.filter(state="held").count() == parent.inhibited.count() == 10_000

    with transaction.atomic():
        resolve_incidents([Ending(each, "it works.") for each in parent.inhibited.select_related("job")], now)
        resolve_incidents([Ending(parent, "it answers.")], now + timedelta(minutes=11))
    for minutes in (12, 13, 30):
        deliver_due(now + timedelta(minutes=minutes))
    assert len(mail_sink.mails) == 2
    assert (
        "It hid 10000 of its jobs' incidents; 0 of them are open."
        in message_of(Delivery.objects.latest("id")).lead.text()
    )
