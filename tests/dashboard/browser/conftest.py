"""A Chromium that is logged in to a running Waymark and stores screenshots under var/test/."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from monitoring import broker
from tests.waiting import eventually

# A busy machine renders pages slowly.
expect.set_options(timeout=60_000)

PICTURES = Path(__file__).resolve().parents[3] / "var" / "test"
# The log lines of htmx for a request that was pending when the browser left its page.
LEFT = ("htmx:afterRequest, ", "htmx:sendAbort, ")
# Plotly redraws charts a moment after the window has changed.
_CHARTS_FIT = """() => [...document.querySelectorAll(".chart .main-svg")].every(
    (drawing) => drawing.getBoundingClientRect().width <= drawing.closest(".chart").clientWidth + 1)"""
SIZES = {"wide": (1440, 900), "middle": (1024, 768), "narrow": (390, 844)}

_SQUEEZED = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (texts.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    if (range.getClientRects().length > 3 && range.getBoundingClientRect().width < 30) {
      found.push(texts.currentNode.data.trim());
    }
  }
  return found;
}"""


class Reader:
    """A browser with a logged-in user. Errors and warnings of its console are stored in `complaints`."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.complaints: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, expected: ConsoleMessage) -> None:
        if expected.type in ("error", "warning") and not expected.text.startswith(LEFT):
            where = expected.location
            self.complaints.append(f"{self.page.url}: {expected.text} ({where['url']}:{where['lineNumber']})")

    def open(self, path: str) -> Page:
        self.page.goto(self.address + path)
        self.page.wait_for_load_state("networkidle")
        return self.page

    def refresh(self, part: str) -> None:
        """Refresh the live parts of the page, and wait until the part with this ID is replaced."""
        self.page.evaluate(
            """part => new Promise((done) => {
              document.body.addEventListener("htmx:afterSettle", ({ detail }) => detail.target.id === part && done());
              document.body.dispatchEvent(new CustomEvent("tick"));
            })""",
            part,
        )

    def speak(self, language: str) -> None:
        """Read the next pages in this language."""
        name = settings.LANGUAGE_COOKIE_NAME
        self.page.context.add_cookies([{"name": name, "value": language, "url": self.address}])

    def picture(self, name: str, whole: bool = True) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        # Playwright would hide the caret by an inline style, which the content security policy refuses at a swap.
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=whole, caret="initial")

    def turn(self, size: str, theme: str) -> None:
        """Change the size of the screen and the theme."""
        width, height = SIZES[size]
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        self.page.wait_for_function(_CHARTS_FIT)

    def barriers(self, *rules: str) -> list[str]:
        """Return the findings of axe of every impact, for all its rules or only the given rules."""
        options: dict[str, object] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = rules
        found = Axe().run(self.page, options=options).response["violations"]
        return [f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:160]} ({len(v['nodes'])}×)" for v in found]

    def overflow(self) -> int:
        """Return the number of pixels by which the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def cut(self) -> list[str]:
        """Return the tables that are wider than their card, so that they must be scrolled horizontally."""
        wider = "tables => tables.filter(t => t.scrollWidth - t.clientWidth > 1).map(t => t.ariaLabel)"
        found: list[str] = self.page.eval_on_selector_all(".table-wrap", wider)
        return found

    def squeezed(self) -> list[str]:
        """Return the texts that are broken into more than three lines of one or two letters."""
        found: list[str] = self.page.evaluate(_SQUEEZED)
        return found


@pytest.fixture
def signs_of_life(redis_url: str, settings: Any) -> Iterator[None]:
    """Store the heartbeats of two beats and two workers, and some waiting tasks."""
    settings.CELERY_BROKER_URL = redis_url
    with broker.connect() as redis, pytest.MonkeyPatch.context() as patch:
        for number in (1, 2):
            patch.setattr(broker, "process_name", lambda number=number: f"waymark-{number}:412{number}")
            broker.write_heartbeat(redis, "beat", leads=number == 1)
            broker.write_heartbeat(redis, "worker", threads=4, taken=172_800 // number)
        redis.lpush(broker.QUEUE, "a", "b", "c")
        yield
        redis.flushall()


@pytest.fixture
def read_as(browser: Browser, live_server: Any, operator_user: User) -> Iterator[Callable[..., Reader]]:
    """Yield a function that starts a browser: `read_as(size="narrow", theme="dark", user=…, zone="Asia/Tokyo")`.

    By default the user is the operator, and the time zone is UTC.
    """
    contexts: list[BrowserContext] = []

    def start(size: str = "wide", theme: str = "light", user: User | None = operator_user, zone: str = "UTC") -> Reader:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            timezone_id=zone,
        )
        contexts.append(context)
        context.set_default_timeout(60_000)
        if user is not None:
            client = Client()
            client.force_login(user)
            session = client.cookies[settings.SESSION_COOKIE_NAME].value
            context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}])
        return Reader(context.new_page(), live_server.url)

    yield start
    for context in contexts:
        context.close()
    # Open pages poll their live parts: wait for the last response before the database is emptied.
    eventually("every request is answered", _all_is_answered)


def _all_is_answered() -> bool:
    return not any("process_request_thread" in each.name for each in threading.enumerate())
