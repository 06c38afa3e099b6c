"""Everything works by keyboard, from the log-in to a restart, and the focus is always visible."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from monitoring.models import Job, RestartAttempt
from tests.dashboard import builders as make
from tests.dashboard import sample_fleet
from tests.dashboard.browser.appearance import mark_as_polled
from tests.dashboard.browser.conftest import SIZES, Reader
from tests.dashboard.browser.keys import Keys

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
# No refresh, because a refreshed part has other elements than those counted at the start of the walk.
STILL = "window.setInterval = () => 0;"


def test_job_is_found_and_restarted_by_keyboard(
    read_as: Callable[..., Reader], signs_of_life: None, operator_user: User, now: datetime
) -> None:
    job = sample_fleet.make_busy_job(now, make.make_cluster(now))
    Job.objects.filter(pk=job.pk).update(epoch=1)  # that of the restart in the scene
    sample_fleet.make_healthy_job(now, job.cluster, "flights-by-carrier")
    mark_as_polled()
    reader = read_as(user=None)
    reader.page.add_init_script(STILL)
    keys = Keys(reader.open(reverse("fleet")))
    _log_in(keys)
    _find(keys, job)
    _read(keys)
    _restart(keys, job)
    assert reader.complaints == []


def _log_in(keys: Keys) -> None:
    page = keys.page
    expect(page.get_by_label("User name")).to_be_focused()
    _everything_is_reached(keys)
    keys.go_to(page.get_by_label("User name"))
    keys.type("olga")
    keys.go_to(page.get_by_label("Password"))
    keys.type("pw-olga-1")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()


def _find(keys: Keys, job: Job) -> None:
    """Find the job by `/`, which filters the fleet, and by Ctrl-K. The bar for selected jobs covers no element."""
    page = keys.page
    _everything_is_reached(keys)
    box = page.get_by_label(f"Select {job.name}")
    keys.go_to(box)
    keys.press("Space")
    expect(page.get_by_role("form", name="With selected")).to_be_visible()
    _everything_is_reached(keys)
    keys.go_to(box)
    keys.press("Space")
    keys.press("/")
    expect(page.locator("#find")).to_be_focused()
    keys.type(job.name)
    keys.press("Enter")
    expect(page.locator("#fleet-live tbody tr")).to_have_count(1)
    row = page.locator(f"#job-{job.pk}")
    keys.go_to(row)

    keys.press("Control+k")
    expect(page.get_by_role("combobox")).to_be_focused()
    keys.press("Escape")
    expect(row).to_be_focused()
    keys.press("Control+k")
    keys.type("flights")
    options = page.get_by_role("option")
    expect(options).to_have_count(2)
    expect(options.first).to_have_attribute("aria-selected", "true")
    keys.press("ArrowDown")
    expect(options.filter(has_text=job.name)).to_have_attribute("aria-selected", "true")
    keys.press("Enter")
    expect(page.get_by_role("heading", name=job.name, level=1)).to_be_visible()


def _read(keys: Keys) -> None:
    """Read the overview, its time range, the history, an expanded row, and a checkpoint with an operator's subtasks."""
    page = keys.page
    expect(page.locator(".chart .loading")).to_have_count(0)
    _everything_is_reached(keys)
    keys.choose(page.get_by_text("Custom range"))
    keys.go_to(page.get_by_label("From (UTC)", exact=True))
    keys.press("Escape")
    expect(page.get_by_text("Custom range")).to_be_focused()
    expect(page.get_by_label("From (UTC)", exact=True)).to_be_hidden()

    keys.choose(page.get_by_role("navigation", name="Job pages").get_by_role("link", name="History"))
    expect(page.get_by_role("region", name="Checkpoints", exact=True)).to_be_visible()
    _everything_is_reached(keys)
    keys.choose(page.get_by_role("button", name="Operators: checkpoint 285"))
    keys.choose(page.get_by_role("link", name="Open details"))
    expect(page.get_by_role("heading", name="Checkpoint 285")).to_be_visible()
    keys.choose(page.get_by_role("button", name="Subtasks of aggregate by aircraft and route"))
    expect(page.get_by_role("region", name="Subtasks of aggregate")).to_be_visible()
    _everything_is_reached(keys)


def _restart(keys: Keys, job: Job) -> None:
    """Restart from another snapshot than the preselected one, with the other way to stop the job."""
    page = keys.page
    keys.choose(page.get_by_role("link", name="Restart from…"))
    expect(page.get_by_role("heading", name="What will happen")).to_be_visible()
    _everything_is_reached(keys)
    savepoint = job.savepoints.get(pinned=True)
    keys.choose(page.locator(f'a[href^="?from=savepoint-{savepoint.pk}&"]'))
    expect(page.get_by_role("heading", level=1)).to_contain_text("from savepoint")
    keys.go_to(page.get_by_label("With a savepoint, so that you can return"))
    keys.press("ArrowDown")
    expect(page.get_by_label("Immediately, without a savepoint")).to_be_checked()
    keys.choose(page.get_by_role("button", name="Restart from savepoint"))
    expect(page.get_by_text("This page updates until the job is running again")).to_be_visible()
    attempt = RestartAttempt.objects.get(job=job, ended_at=None)
    assert (attempt.requested_by, attempt.restore_path) == ("olga", savepoint.path)


def _everything_is_reached(keys: Keys) -> None:
    """Check on a small and on a large screen that the keyboard reaches every element."""
    found = {}
    for size in ("narrow", "wide"):
        width, height = SIZES[size]
        keys.page.set_viewport_size({"width": width, "height": height})
        found[size] = keys.walk() + [f"{name} is for the mouse only" for name in keys.mouse_only()]
    assert found == {"narrow": [], "wide": []}
