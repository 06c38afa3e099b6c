"""Two people act on the same open page: the second sees what the first did, and nothing happens twice.

tests/dashboard/views/test_second_person.py and test_concurrent_edits.py have the same rules without a browser.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse
from playwright.sync_api import Page, expect
from pytest_httpserver import HTTPServer

from monitoring.models import (
    AttemptState,
    AuditEntry,
    AutomationPause,
    Cluster,
    IncidentState,
    Job,
    MaintenanceWindow,
    RestartAttempt,
    Run,
    RunState,
    Savepoint,
    SavepointState,
)
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import mark_as_polled
from tests.dashboard.browser.conftest import Reader
from tests.dashboard.views.test_runs import OUTCOME

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.long, pytest.mark.django_db(transaction=True)]

ADA, BOB = "5", "7"  # what each person enters into a field
CHANGED = "The values have changed since this page was loaded"
# The page of the second person does not refresh itself, as if both clicked within the same second.
_FREEZE = 'document.body.addEventListener("htmx:beforeRequest", (event) => event.preventDefault())'


@dataclass(frozen=True)
class Act:
    """What both people do on a page. `text` is what the second reads; `rows` are the rows that the action creates."""

    page: str
    act: Callable[[Page, str], None]
    text: str
    rows: QuerySet[Any]
    prepare: Callable[[Page], None] = field(default=lambda page: None)


@pytest.fixture
def job(now: datetime, httpserver: HTTPServer) -> Job:
    cancel = httpserver.expect_request(re.compile(r"/jobs/\w+"), method="PATCH")
    cancel.respond_with_json({}, status=202)
    cluster = make.make_cluster(now)
    Cluster.objects.update(rest_url=httpserver.url_for("/").rstrip("/"))
    job = make.make_job(cluster)
    run = make.make_run(job, now)
    for minutes in (30, 5):
        make.make_savepoint(run, now - timedelta(minutes=minutes))
    mark_as_polled()
    return job


def of_job(name: str, job: Job) -> str:
    return reverse(name, args=[job.pk])


def entries(action: str) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(action=action)


def click(name: str) -> Callable[[Page, str], None]:
    return lambda page, value: page.get_by_role("button", name=name, exact=True).click()


def fill(label: str, button: str) -> Callable[[Page, str], None]:
    def act(page: Page, value: str) -> None:
        page.get_by_label(label, exact=True).fill(value)
        click(button)(page, value)

    return act


def restart(job: Job, now: datetime) -> Act:
    act, rows = click("Stop with a savepoint and restart"), RestartAttempt.objects.all()
    return Act(of_job("job-restart", job), act, "being restarted already", rows)


def run_again(job: Job, now: datetime) -> Act:
    Run.objects.update(state=RunState.FINISHED, ended_at=now, outcome=OUTCOME)
    return Act(of_job("job", job), click("Run again"), "being restarted already", RestartAttempt.objects.all())


def launch(job: Job, now: datetime) -> Act:
    def act(page: Page, value: str) -> None:
        page.get_by_label("Stop the job and restart it with this launch record").check()
        page.get_by_role("button", name="Stop and restart the job").click()

    return Act(of_job("job-launch", job), act, "Nothing was stopped.", RestartAttempt.objects.all())


def save_launch(job: Job, now: datetime) -> Act:
    act = fill("Parallelism", "Save")
    return Act(of_job("job-launch", job), act, CHANGED, entries("job.launch"))


def cancel_restart(job: Job, now: datetime) -> Act:
    attempt = make.make_attempt(job, now, AttemptState.DECIDED, old_run=job.current_run)
    canceled = RestartAttempt.objects.filter(state=AttemptState.CANCELED)
    address = reverse("restart-progress", args=[attempt.pk])
    return Act(address, click("Cancel the restart"), "can no longer be canceled", canceled)


def stop(job: Job, now: datetime) -> Act:
    stopping = Savepoint.objects.filter(stops_job=True)
    return Act(of_job("job-stop", job), click("Stop with savepoint"), "already under way", stopping)


def cancel(job: Job, now: datetime) -> Act:
    act = fill("Reason", "Cancel the job")
    return Act(of_job("job-cancel", job), act, "Nothing was canceled. ada canceled run 1", entries("job.cancel"))


def savepoint_now(job: Job, now: datetime) -> Act:
    requested = Savepoint.objects.filter(state=SavepointState.REQUESTED)
    return Act(of_job("job", job), click("Savepoint now"), "already under way", requested)


def savepoint_of_several(job: Job, now: datetime) -> Act:
    requested = Savepoint.objects.filter(state=SavepointState.REQUESTED)
    return Act(reverse("fleet"), click("Savepoint now"), "already under way", requested, _select(job))


def stop_several(job: Job, now: datetime) -> Act:
    def prepare(page: Page) -> None:
        _select(job)(page)
        page.get_by_role("button", name="Stop with a savepoint…").click()
        expect(page.get_by_role("heading", name="Stop 1 job with a savepoint?")).to_be_visible()

    act = click("Stop job")
    return Act(reverse("fleet"), act, "already under way", Savepoint.objects.filter(stops_job=True), prepare)


def _select(job: Job) -> Callable[[Page], None]:
    return lambda page: page.get_by_label(f"Select {job.name}").check()


def dispose(job: Job, now: datetime) -> Act:
    address = reverse("savepoint", args=[job.savepoints.earliest("requested_at").pk])
    return Act(address, click("Delete files"), "Nothing was deleted.", entries("savepoint.dispose"))


def pin(job: Job, now: datetime) -> Act:
    address = reverse("savepoint", args=[job.savepoints.earliest("requested_at").pk])
    return Act(address, fill("Note", "Save"), CHANGED, entries("savepoint.keep"))


def save_rule(job: Job, now: datetime) -> Act:
    address = reverse("rule", args=[make.make_rule(job).pk])
    return Act(address, fill("Threshold", "Save rule"), CHANGED, entries("rule.change"))


def delete_rule(job: Job, now: datetime) -> Act:
    address = reverse("rule-remove", args=[make.make_rule(job).pk])
    return Act(address, click("Delete rule"), "the object that it showed was deleted", entries("rule.remove"))


def save_channel(job: Job, now: datetime) -> Act:
    address = reverse("channel", args=[make.make_channel().pk])
    return Act(address, fill("Collect for (seconds)", "Save channel"), CHANGED, entries("channel.change"))


def delete_channel(job: Job, now: datetime) -> Act:
    address = reverse("channel-remove", args=[make.make_channel().pk])
    return Act(address, click("Delete channel"), "the object that it showed was deleted", entries("channel.remove"))


def save_automation(job: Job, now: datetime) -> Act:
    act = fill("Max. restarts per hour", "Save")
    return Act(of_job("job-configuration", job), act, CHANGED, entries("job.automation"))


def save_retention(job: Job, now: datetime) -> Act:
    act = fill("Newest savepoints to keep", "Save")
    return Act(of_job("job-retention", job), act, CHANGED, entries("savepoint.retention"))


def edit_cluster(job: Job, now: datetime) -> Act:
    Cluster.objects.update(rest_url="http://127.0.0.1:1")  # no server answers there

    def act(page: Page, value: str) -> None:
        fill("Max. concurrent requests", "Save")(page, value)
        if value == ADA:
            page.get_by_label("Save without a connection").check()
            click("Save")(page, value)

    return Act(reverse("cluster-edit", args=[job.cluster_id]), act, CHANGED, entries("cluster.change"))


def stop_monitoring(job: Job, now: datetime) -> Act:
    address = reverse("cluster", args=[job.cluster_id])
    return Act(address, fill("Reason", "Stop monitoring"), "is already stopped.", entries("cluster.pause"))


def remove_cluster(job: Job, now: datetime) -> Act:
    address = reverse("cluster-remove", args=[job.cluster_id])
    return Act(address, fill("Reason", "Remove the cluster"), "is already removed.", entries("cluster.archive"))


def plan_window(job: Job, now: datetime) -> Act:
    def act(page: Page, value: str) -> None:
        page.get_by_label("Job", exact=True).fill(job.name)
        fill("Reason", "Plan window")(page, value)

    text = "ada has planned a window with this scope since this page was loaded"
    return Act(reverse("maintenance"), act, text, MaintenanceWindow.objects.all())


def end_window(job: Job, now: datetime) -> Act:
    window = MaintenanceWindow.objects.create(
        reason="x", job=job, starts_at=now, ends_at=now + timedelta(hours=1), created_by="olga"
    )
    address = reverse("maintenance-window", args=[window.pk])
    return Act(address, click("End now"), "is over already", entries("maintenance.end"))


def pause(job: Job, now: datetime) -> Act:
    text = "ada has already paused this automation since this page was loaded"
    return Act(reverse("automation"), fill("Reason", "Pause"), text, AutomationPause.objects.all())


def end_pause(job: Job, now: datetime) -> Act:
    AutomationPause.objects.create(reason="x", author="olga", started_at=now - timedelta(minutes=1))
    text = "The pause has already ended."
    return Act(reverse("automation"), click("End the pause"), text, entries("automation.resume"))


def close_breaker(job: Job, now: datetime) -> Act:
    Job.objects.update(breaker_opened_at=now)
    text, rows = "The breaker is already closed.", entries("restart.breaker-close")
    return Act(of_job("job-restarts", job), click("Close the breaker"), text, rows)


def _incident(job: Job, now: datetime, **fields: Any) -> str:
    return reverse("incident", args=[make.make_incident(make.make_rule(job), now, **fields).pk])


def acknowledge(job: Job, now: datetime) -> Act:
    text, rows = "acknowledged already", entries("incident.acknowledge")
    return Act(_incident(job, now), click("Acknowledge"), text, rows)


def resolve(job: Job, now: datetime) -> Act:
    return Act(_incident(job, now), click("Resolve"), "resolved already", entries("incident.resolve"))


def reopen(job: Job, now: datetime) -> Act:
    address = _incident(job, now, state=IncidentState.RESOLVED, resolved_at=now)
    return Act(address, click("Reopen"), "open already", entries("incident.reopen"))


def snooze(job: Job, now: datetime) -> Act:
    def act(page: Page, value: str) -> None:
        page.locator("#snooze-menu > summary").click()
        click("2 h" if value == ADA else "30 min")(page, value)

    text = "The incident has been snoozed since this page was loaded"
    return Act(_incident(job, now), act, text, entries("incident.snooze"))


ACTS = (
    *(restart, run_again, launch, save_launch, cancel_restart, stop, cancel, savepoint_now, savepoint_of_several),
    *(stop_several, dispose, pin, save_rule, delete_rule, save_channel, delete_channel, save_automation),
    *(save_retention, edit_cluster, stop_monitoring, remove_cluster, plan_window, end_window, pause, end_pause),
    *(close_breaker, acknowledge, resolve, reopen, snooze),
)


@pytest.mark.parametrize("made", ACTS, ids=lambda made: made.__name__)
def test_second_person_sees_the_first_action_and_cannot_repeat_it(
    read_as: Callable[..., Reader], job: Job, now: datetime, made: Callable[[Job, datetime], Act]
) -> None:
    shown = made(job, now)
    ada, bob = (read_as(user=User.objects.create_superuser(name)).open(shown.page) for name in ("ada", "bob"))
    for page in (ada, bob):
        shown.prepare(page)
        page.evaluate(_FREEZE)

    shown.act(ada, ADA)
    _wait_for_one(ada, shown)
    expect(ada.locator("body")).not_to_contain_text(shown.text)
    shown.act(bob, BOB)
    expect(bob.locator("body")).to_contain_text(shown.text)
    assert shown.rows.count() == 1


def _wait_for_one(page: Page, shown: Act) -> None:
    """Wait until the page that follows the first action is loaded, so that the action is stored."""
    for _attempt in range(100):
        if shown.rows.count() == 1:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{page.url}: the first action had no effect")


@pytest.mark.parametrize("made", [save_rule, save_channel, save_automation, save_retention, pin, save_launch])
def test_refused_form_keeps_its_input_and_can_be_sent_again(
    read_as: Callable[..., Reader], job: Job, now: datetime, made: Callable[[Job, datetime], Act]
) -> None:
    shown = made(job, now)
    ada, reader = read_as(user=User.objects.create_superuser("ada")), read_as(user=User.objects.create_superuser("bob"))
    first, second = ada.open(shown.page), reader.open(shown.page)
    shown.act(first, ADA)
    _wait_for_one(first, shown)
    shown.act(second, BOB)
    summary = second.get_by_role("alert").filter(has_text=CHANGED)
    expect(summary).to_contain_text("The last change was made by ada")
    reader.picture(f"changed-meanwhile-{made.__name__}")
    assert reader.overflow() <= 0
    assert reader.barriers() == []
    second.get_by_role("button", name=re.compile("^Save( rule| channel)?$")).click()
    expect(summary).to_have_count(0)
    assert shown.rows.count() == 2
