"""The page that submits a job: empty, with found checkpoint locations, and with errors, in all sizes and themes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect
from pytest_httpserver import HTTPServer

from monitoring.models import Cluster, RestartAttempt
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader
from tests.dashboard.views.test_submitting import FOUND, REFUSED, expect_look, expect_snapshot

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.long, pytest.mark.django_db(transaction=True)]

SEVERAL = "orders=/checkpoints/orders\nlate=s3://warehouse/checkpoints/late\nold=/checkpoints/old"


@pytest.fixture
def cluster(now: datetime, httpserver: HTTPServer) -> Cluster:
    cluster = make.make_cluster(now)
    cluster.rest_url = httpserver.url_for("/").rstrip("/")
    cluster.save()
    return cluster


@pytest.fixture
def admin(read_as: Callable[..., Reader], cluster: Cluster) -> Reader:
    return read_as(user=User.objects.create_superuser("ada"))


def choose(page: Page, locations: str) -> None:
    page.get_by_label("A checkpoint location that Spark wrote").check()
    page.get_by_label("Checkpoint location", exact=True).fill(locations)
    page.get_by_role("button", name="Check location").click()


def test_pages_for_submitting_a_job(admin: Reader, cluster: Cluster, httpserver: HTTPServer) -> None:
    found = [
        FOUND | {"query": "orders"},
        FOUND | {"query": "late", "begunBatch": None, "operators": [], "stateStore": ""},
    ]
    expect_look(httpserver, *found, REFUSED | {"query": "old"})
    expect_snapshot(httpserver)

    def settle(page: Page, name: str) -> None:
        if name == "found":
            choose(page, SEVERAL)
            expect(page.locator("#found")).to_contain_text("orders continues after batch 41.")
        elif name == "savepoint":
            page.get_by_label("A savepoint or retained checkpoint").check()
            page.get_by_label("Location", exact=True).fill("s3://warehouse/savepoints/savepoint-4c2f1e-0a1b2c3d4e5f")
            page.get_by_role("button", name="Check location").click()
            expect(page.locator("#found-savepoint")).to_contain_text("late to console")
        elif name == "wrong":
            page.get_by_role("button", name="Submit the job").click()
            expect(page.get_by_role("alert")).to_contain_text("The job was not started.")
            admin.complaints[:] = [each for each in admin.complaints if "422" not in each]  # the empty form was refused

    address = reverse("cluster-submit", args=[cluster.pk])
    pages = dict.fromkeys(("empty", "found", "savepoint", "wrong"), address)
    check_pages(admin, pages, "submit-", settle=settle)


def test_a_job_starts_from_the_displayed_checkpoint(admin: Reader, cluster: Cluster, httpserver: HTTPServer) -> None:
    expect_look(httpserver, FOUND)
    page = admin.open(reverse("fleet"))
    page.get_by_role("link", name="Submit a job").click()
    page.get_by_label("Job name").fill("orders")
    page.get_by_label("Program on the cluster").fill("4c2f_orders.py")
    page.get_by_label("Entry point").fill("orders.py")
    choose(page, "/checkpoints/orders")
    expect(page.locator("#found")).to_contain_text("The job continues after batch 41.")
    page.get_by_role("button", name="Submit the job").click()
    expect(page.get_by_role("heading", name="Start of orders")).to_be_visible()
    assert RestartAttempt.objects.get().imports == {"": "/checkpoints/orders"}
    check_pages(admin, {"start": page.url.removeprefix(admin.address)}, "submit-")
