"""Actions in the browser: each click changes a row, and the page shows the change without a reload."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect

from monitoring.models import (
    AttemptState,
    Checkpoint,
    MaintenanceWindow,
    OperatorCheckpoint,
    RestartAttempt,
    RestartStep,
    StepState,
)
from tests.dashboard import builders as make
from tests.dashboard import sample_fleet
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
ReadAs = Callable[..., Reader]


def test_log_in_and_out(read_as: ReadAs, operator_user: User) -> None:
    reader = read_as(user=None)
    page = reader.open(reverse("fleet"))
    reader.picture("login")
    page.get_by_label("User name").fill("olga")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not match")
    expect(page.get_by_label("User name")).to_have_value("olga")
    assert reader.barriers() == []
    page.get_by_label("Password").fill("pw-olga-1")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    page.locator(".top .menu summary").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


@pytest.mark.nightly
def test_the_fleet_shows_new_rows_of_the_workers(read_as: ReadAs, now: datetime) -> None:
    reader = read_as()
    page = reader.open(reverse("fleet"))
    reader.picture("fleet-empty")
    expect(page.get_by_text("No clusters yet")).to_be_visible()
    cluster = make.make_cluster(now)
    make.make_run(make.make_job(cluster), now)
    expect(page.get_by_role("link", name="flights-by-route", exact=True)).to_be_visible(timeout=60_000)
    assert reader.complaints == []


@pytest.mark.nightly
def test_a_thousand_jobs_are_found_by_typing(read_as: ReadAs, now: datetime) -> None:
    cluster = make.make_cluster(now)
    for n in range(1000):
        make.make_job(cluster, f"job-{n:04}")
    make.make_run(cluster.jobs.get(name="job-0042"), now)
    reader = read_as()
    page = reader.open(reverse("fleet"))
    reader.picture("fleet-thousand", whole=False)
    expect(page.locator(".cell")).to_have_count(1000)
    page.keyboard.press("/")
    page.keyboard.type("job-0042")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert reader.complaints == []


def test_restart_progress_is_shown_until_the_job_runs(read_as: ReadAs, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now)
    make.make_checkpoints(run, now, make.Shape(count=12))
    make.make_savepoint(run, now - timedelta(hours=4))
    reader = read_as()
    page = reader.open(reverse("job-savepoints", args=[job.pk]))
    page.get_by_role("link", name="Restart from this savepoint").click()
    expect(page.get_by_text("the input of the last 4 h")).to_be_visible()
    reader.picture("restart-asks")
    page.get_by_role("button", name="Restart from savepoint").click()
    expect(page.get_by_text("This page updates until the job is running again")).to_be_visible()
    attempt = RestartAttempt.objects.get(job=job)
    _worker_moves(attempt, now)
    expect(page.get_by_text("check the state", exact=False).first).to_be_visible(timeout=60_000)
    _worker_ends(attempt, make.make_run(job, now, age=timedelta(0)).pk, now)
    expect(page.get_by_text("Job is running again", exact=True)).to_be_visible(timeout=60_000)
    reader.picture("restart-done")
    assert reader.complaints == []


def _worker_moves(attempt: RestartAttempt, now: datetime) -> None:
    RestartStep.objects.create(attempt=attempt, name="check the state", state=StepState.RUNNING, started_at=now)
    RestartAttempt.objects.filter(pk=attempt.pk).update(state=AttemptState.VALIDATING)


def _worker_ends(attempt: RestartAttempt, run: int, now: datetime) -> None:
    attempt.steps.update(state=StepState.DONE, ended_at=now + timedelta(seconds=1))
    ended = {"state": AttemptState.SUCCEEDED, "ended_at": now + timedelta(seconds=9), "new_run": run}
    RestartAttempt.objects.filter(pk=attempt.pk).update(**ended)


@pytest.mark.nightly
def test_an_error_in_a_rule_is_shown_at_its_field(read_as: ReadAs, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now)
    reader = read_as()
    page = reader.open(reverse("rule-new", args=["failed_in_window"]) + f"?job={job.pk}")
    page.get_by_label("Threshold", exact=True).fill("0")
    page.get_by_label("Window", exact=True).fill("-5 min")
    expect(page.get_by_role("status").filter(has_text="Enter a whole number from 1")).to_be_visible()
    page.get_by_role("button", name="Save rule").click()
    expect(page.get_by_role("alert")).to_contain_text("Not saved.")
    expect(page.get_by_label("Threshold", exact=True)).to_have_value("0")
    expect(page.get_by_label("Threshold", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Window", exact=True)).to_have_value("-5 min")
    reader.picture("rule-error")
    assert reader.barriers() == []


@pytest.mark.nightly
def test_rule_form_updates_sentence_and_backtest(read_as: ReadAs, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now, age=timedelta(hours=3))
    make.make_checkpoints(
        run, now - timedelta(minutes=10), make.Shape(count=300, failed=frozenset({90, 91, 92, 200})), 3
    )
    reader = read_as()
    page = reader.open(reverse("rule-new", args=["failed_in_window"]) + f"?job={job.pk}")
    expect(page.get_by_text("The rule would have opened 1 incident")).to_be_visible()
    page.get_by_label("Threshold", exact=True).fill("1")
    expect(page.locator("#rule-sentence")).to_contain_text("when 1 checkpoint failed within 15 min")
    page.get_by_role("button", name="Run backtest").click()
    expect(page.get_by_text("The rule would have opened 2 incidents")).to_be_visible()
    page.wait_for_selector("#backtest .chart .main-svg")
    reader.picture("rule-backtest")
    page.get_by_role("button", name="Use this threshold").click()
    expect(page.get_by_label("Threshold", exact=True)).to_have_value("5")
    assert reader.barriers() == []
    assert reader.complaints == []


def test_back_shows_the_page_after_its_live_part_was_refreshed(read_as: ReadAs, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now)
    reader = read_as()
    for path, heading in ((reverse("job", args=[job.pk]), job.name), (reverse("clusters"), "Clusters")):
        page = reader.open(path)
        page.wait_for_load_state("load")
        with page.expect_response(lambda response: response.request.headers.get("hx-target", "").endswith("-live")):
            page.evaluate("for (const name of ['tick', 'tick-2']) document.body.dispatchEvent(new CustomEvent(name))")
        reader.open(reverse("maintenance"))
        page.go_back()
        expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
    assert reader.complaints == []


def test_double_click_reload_and_back_do_not_repeat_an_action(read_as: ReadAs, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    reader = read_as()
    page = reader.open(reverse("job", args=[job.pk]))
    page = reader.open(reverse("maintenance"))
    plan = page.get_by_role("button", name="Plan window")
    page.get_by_label("Job", exact=True).fill(job.name)
    plan.click()
    wrong = page.get_by_role("alert").filter(has_text="Not saved.")
    expect(wrong).to_be_visible()
    page.wait_for_load_state("load")  # the scripts of the page have run
    page.reload()
    expect(wrong).to_have_count(0)  # the reload loaded the page and did not send the form again
    page.get_by_label("Job", exact=True).fill(job.name)
    page.get_by_label("Reason").fill("the disks are swapped")
    plan.dblclick()
    expect(page.get_by_role("cell", name="the disks are swapped")).to_have_count(1)
    for _entry in range(4):  # go back over all entries of the maintenance page
        if page.url == reader.address + reverse("maintenance"):
            expect(plan).to_be_visible()
            page.go_back()
    expect(page.get_by_role("heading", name=job.name, level=1)).to_be_visible()
    assert MaintenanceWindow.objects.count() == 1
    sent = 'form.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true }))'
    twice = f"form => [{sent}, {sent}]"
    assert page.locator("form[method=post]").first.evaluate(twice) == [True, False]


@pytest.mark.nightly
def test_theme_is_stored_and_applied_to_charts(read_as: ReadAs, now: datetime) -> None:
    job = sample_fleet.make_busy_job(now, make.make_cluster(now))
    reader = read_as()
    page = reader.open(reverse("job", args=[job.pk]))
    page.wait_for_selector(".chart .main-svg")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Switch theme").click()
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert reader.complaints == []


@pytest.mark.nightly
def test_subtasks_sort_by_the_column_that_is_clicked(read_as: ReadAs, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    make.make_operators(make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=2)))
    page = read_as().open(reverse("job-history", args=[job.pk]))
    page.get_by_role("button", name="Operators: checkpoint 2").click()
    page.get_by_role("button", name="Subtasks of aggregate by aircraft and route").click()
    page.get_by_role("button", name="Alignment").click()
    aggregate = OperatorCheckpoint.objects.get(checkpoint__checkpoint_id=2, name="aggregate by aircraft and route")
    longest = max(range(aggregate.num_subtasks), key=lambda subtask: aggregate.subtask_alignment[subtask] or 0)
    first = page.get_by_role("region", name="Subtasks of aggregate").locator("tbody").nth(1).locator("th").first
    expect(first).to_have_text(str(longest))


@pytest.mark.nightly
def test_two_checkpoints_of_different_pages_are_compared(read_as: ReadAs, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    make.make_operators(make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=30)))
    reader = read_as()
    page = reader.open(reverse("job-history", args=[job.pk]))
    page.get_by_label("Compare: checkpoint 30", exact=True).check()
    compare = page.locator("#compare").get_by_role("button", name="Compare")
    expect(compare).to_be_disabled()
    page.get_by_role("link", name="Older").click()
    page.wait_for_load_state()  # the page has restored its selection then
    page.get_by_label("Compare: checkpoint 3", exact=True).check()
    expect(page.locator("#compare output")).to_have_text("1/30 · 1/3")
    page.get_by_label("Compare: checkpoint 2", exact=True).check()
    expect(compare).to_be_disabled()
    page.get_by_label("Compare: checkpoint 2", exact=True).uncheck()
    compare.click()
    expect(page.get_by_label("From", exact=True)).to_have_value("1/3")
    expect(page.get_by_label("To", exact=True)).to_have_value("1/30")
    page = reader.open(reverse("job-history", args=[job.pk]))
    expect(page.locator("#compare")).to_be_hidden()
    assert reader.complaints == []


def test_a_pending_checkpoint_finishes_in_the_history(read_as: ReadAs, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now)
    made = make.make_checkpoints(run, now, make.Shape(count=30))
    make.make_operators(made)
    Checkpoint.objects.filter(pk=made[-1].pk).update(status="IN_PROGRESS")
    reader = read_as()
    page = reader.open(reverse("job-history", args=[job.pk]))
    page.evaluate("document.querySelector('.card').dataset.shown = 'before'")
    row = page.locator(f"#checkpoint-{made[-1].pk}")
    expect(row.locator(".badge")).to_have_text("Pending")
    expander = page.get_by_role("button", name=f"Operators: checkpoint {made[-1].checkpoint_id}")
    expander.click()
    expect(page.get_by_role("button", name="Subtasks of aggregate by aircraft and route")).to_be_visible()
    expander.focus()
    page.evaluate("window.scrollTo(0, 200)")
    Checkpoint.objects.filter(pk=made[-1].pk).update(status="COMPLETED")
    make.make_checkpoints(run, now + timedelta(seconds=20), make.Shape(count=1, first_id=31))
    page.evaluate("document.body.dispatchEvent(new CustomEvent('tick'))")
    expect(row.locator(".badge")).to_have_text("Completed")
    expect(expander).to_be_focused()
    expect(expander).to_have_attribute("aria-expanded", "true")
    expect(page.locator(f"#detail-{made[-1].pk}")).to_be_visible()
    assert page.evaluate("window.scrollY") > 0
    expect(page.locator(".card[data-shown]")).to_have_count(1)
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    expect(page.get_by_text("Newer checkpoints are available.")).to_be_in_viewport()
    assert reader.complaints == []


@pytest.mark.nightly
def test_empty_pages_say_what_to_do_next(read_as: ReadAs, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now), sample_fleet.LONG_NAME)
    make.make_run(job, now, age=timedelta(seconds=5))
    tabs = ("", *("-history", "-summary", "-configuration", "-savepoints", "-alerts", "-restarts"))
    tabs += ("-state", "-exceptions", "-compare", "-restart")
    pages = {f"job{tab}": reverse(f"job{tab}", args=[job.pk]) for tab in tabs}
    check_pages(read_as(), pages, "empty-", settle=_charts_are_empty)


def _charts_are_empty(page: Page, name: str) -> None:
    if name == "job":
        expect(page.locator(".chart-empty")).to_have_count(1)
