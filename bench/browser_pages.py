"""Open pages in a browser: layout shift, requests and bytes a minute, and the size of the first view.

Chromium logs in to the web server of `manage.py web`, with a real PostgreSQL server and 144 jobs of three clusters. It
opens the fleet and the overview of a job with an empty cache, and leaves each page open for a minute. Meanwhile
checkpoints complete, polls succeed, and the job takes a savepoint, as in a running installation. The layout shift is
the sum of all shifts in this minute. Chrome's own figure, the worst five seconds, is smaller.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.figures import BenchmarkFailed, Figure
from bench.history import database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

JOBS = 144
OPEN_S = 60
FIRST_VIEW_KB = {"fleet": 100, "overview": 700}  # goals: the overview loads the chart library
POLL_S, CHECKPOINT_S = 2, 10
SAVEPOINT_AFTER_S, SAVEPOINT_TAKES_S = 16, 12
START_LIMIT_S = 60
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
USER, PASSWORD = "bench", secrets.token_urlsafe(12)
_OBSERVE = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


def measure() -> list[Figure]:
    with database() as dsn:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright has an event loop in this thread
        job = _fill()
        with _web_server(dsn) as address, _Life(job), _chromium() as browser:
            page = _logged_in(browser, address)
            return [*_figures(page, "fleet", address + "/"), *_figures(page, "overview", f"{address}/jobs/{job}/")]


def _figures(page: Page, name: str, url: str) -> list[Figure]:
    """Return the figures of one page. The first view loads every file, as if the reader had never been here."""
    traffic = _Traffic.of(page)
    traffic.client.send("Network.clearBrowserCache")
    page.goto(url)
    page.wait_for_load_state("networkidle")
    first = traffic.taken()
    page.wait_for_timeout(OPEN_S * 1000)
    minute = traffic.taken()
    shift = float(page.evaluate("window.shift"))
    return [
        Figure(f"layout shift within {OPEN_S} s", shift, "", 0.05, case=name),
        Figure("requests a minute", minute.requests * 60 / OPEN_S, "", 80, case=name),
        Figure("data a minute", minute.size * 60 / OPEN_S / 1000, "KB", 400, case=name),
        Figure("first view, empty cache", first.size / 1000, "KB", FIRST_VIEW_KB[name], case=name),
        Figure("requests of the first view", first.requests, "", case=name),
    ]


@dataclass
class _Taken:
    requests: int = 0
    size: int = 0  # bytes of responses with their headers, as transferred


@dataclass
class _Traffic:
    """The requests of a page since the last call of `taken`."""

    client: Any
    _now: _Taken = field(default_factory=_Taken)

    @classmethod
    def of(cls, page: Page) -> _Traffic:
        traffic = cls(page.context.new_cdp_session(page))
        traffic.client.on("Network.requestWillBeSent", lambda _event: traffic.count(1, 0))
        traffic.client.on("Network.loadingFinished", lambda event: traffic.count(0, event["encodedDataLength"]))
        traffic.client.send("Network.enable")
        return traffic

    def count(self, requests: int, size: int) -> None:
        self._now.requests += requests
        self._now.size += size

    def taken(self) -> _Taken:
        taken, self._now = self._now, _Taken()
        return taken


class _Life:
    """A thread that writes what the workers of a running installation would write."""

    def __init__(self, job: int) -> None:
        self._job, self._over = job, threading.Event()
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _live(self) -> None:
        from django.db import connection

        try:
            for second in range(0, 10**6, POLL_S):
                self._poll(second)
                if self._over.wait(POLL_S):
                    return
        finally:
            connection.close()

    def _poll(self, second: int) -> None:
        from django.utils import timezone

        from monitoring.models import Cluster, Job, Run, SavepointState
        from tests.dashboard import builders as make

        now, seen = timezone.now(), {"job__cluster__unreachable_since": None, "ended_at": None}
        Cluster.objects.filter(unreachable_since=None).update(last_answer_at=now)
        Run.objects.filter(**seen).update(observed_at=now)
        job = Job.objects.select_related("current_run").get(pk=self._job)
        run = job.current_run
        if run is None:
            raise BenchmarkFailed("the job has no run")
        if second % CHECKPOINT_S == 0:
            shape = make.Shape(count=1, first_id=10_000 + second)
            make.make_operators(make.make_checkpoints(run, now, shape, seed=second))
        in_minute = second % OPEN_S
        if in_minute == SAVEPOINT_AFTER_S:
            make.make_savepoint(run, now, state=SavepointState.REQUESTED, path="", size=None, completed_at=None)
        elif in_minute == SAVEPOINT_AFTER_S + SAVEPOINT_TAKES_S:
            path = f"file:/data/savepoints/savepoint-{second}"
            requested = job.savepoints.filter(state=SavepointState.REQUESTED)
            requested.update(state=SavepointState.COMPLETED, path=path, size=2_405_000_000, completed_at=now)


def _fill() -> int:
    """Create the account and the jobs. Return the key of the job with the most content."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from tests.dashboard import sample_fleet

    User.objects.create_superuser(USER, password=PASSWORD)
    return int(sample_fleet.make_troubled_fleet(timezone.now(), JOBS)[0].pk)


@contextmanager
def _web_server(dsn: str) -> Iterator[str]:
    from dashboard.stack.ports import accepts, any_free

    port = any_free()
    environ = {**os.environ, "DATABASE_URL": dsn, "WAYMARK_SECRET_KEY": secrets.token_hex(32)}
    command = [sys.executable, "manage.py", "web", "--port", str(port)]
    server = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    try:
        began = time.monotonic()
        while not accepts(port):
            if server.poll() is not None or time.monotonic() - began > START_LIMIT_S:
                raise BenchmarkFailed(f"the web server does not accept connections on port {port}")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def _chromium() -> Iterator[Browser]:
    from playwright.sync_api import Error, sync_playwright

    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    with sync_playwright() as playwright:
        try:
            arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
            browser = playwright.chromium.launch(executable_path=found, args=arguments)
        except Error as error:
            raise BenchmarkFailed("there is no Chromium: `make browser` installs it") from error
        with browser:
            yield browser


def _logged_in(browser: Browser, address: str) -> Page:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, timezone_id="UTC")
    context.add_init_script(_OBSERVE)
    page = context.new_page()
    page.goto(f"{address}/login/")
    page.get_by_label("User name").fill(USER)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Fleet").wait_for()
    return page
