"""The tabs of a job. A tab has one or more pages, and its first page opens with it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django import template
from django.template.context import RequestContext
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as noop

from monitoring.models import Engine, Job

register = template.Library()


@dataclass(frozen=True)
class _Page:
    """A page of a tab.

    `name` is the `tab` in the context of its view, and `url` the name of its URL. `ranges` are the parameters of a
    time range that it has besides start, end and run, or None if it has no time range.
    """

    name: str
    url: str
    label: str
    ranges: tuple[str, ...] | None = None


_TABS: tuple[tuple[str, tuple[_Page, ...]], ...] = (
    (
        noop("Overview"),
        (
            _Page("overview", "job", noop("Overview"), ("range",)),
            _Page("summary", "job-summary", noop("Summary"), ("range",)),
        ),
    ),
    (
        noop("History"),
        (_Page("history", "job-history", noop("Checkpoints"), ()), _Page("runs", "job-runs", noop("Runs"))),
    ),
    (
        noop("Savepoints & restarts"),
        (
            _Page("savepoints", "job-savepoints", noop("Savepoints")),
            _Page("restarts", "job-restarts", noop("Restarts")),
        ),
    ),
    (noop("Alerts"), (_Page("alerts", "job-alerts", noop("Alerts")),)),
    (
        noop("Configuration & state"),
        (
            _Page("configuration", "job-configuration", noop("Configuration")),
            _Page("state", "job-state", noop("State")),
        ),
    ),
    (
        noop("Exceptions & logs"),
        (_Page("exceptions", "job-exceptions", noop("Exceptions")), _Page("logs", "job-logs", noop("Logs"))),
    ),
)
_WITH_RANGE = {page.name for _label, pages in _TABS for page in pages if page.ranges is not None}


@dataclass(frozen=True)
class Link:
    """A link of the tabs. `current` is the value of `aria-current`: "page", "true" for the page's tab, or ""."""

    label: str
    address: str
    current: str


@dataclass(frozen=True)
class Tab:
    link: Link
    pages: list[Link]


@register.simple_tag(takes_context=True)
def job_tabs(context: RequestContext) -> list[Tab]:
    """Return the tabs of the job in the context. A tab with a single page has the name of this page."""
    job, current = context["job"], context.get("tab")
    shows_logs = bool(context.get("may_act")) and job.cluster.engine == Engine.SPARK
    tabs = []
    for label, pages in _TABS:
        shown = [page for page in pages if page.name != "logs" or shows_logs]
        links = [
            Link(_(page.label), _address(context, job, page), "page" if page.name == current else "") for page in shown
        ]
        if len(links) == 1:
            tabs.append(Tab(links[0], []))
            continue
        is_current = any(link.current for link in links)
        tabs.append(Tab(Link(_(label), links[0].address, "true" if is_current else ""), links))
    return tabs


def _address(context: RequestContext, job: Job, page: _Page) -> str:
    """Return the address of a page, with the time range and the run of the current page if both pages have them."""
    address = reverse(page.url, args=[job.pk])
    if page.ranges is None or context.get("tab") not in _WITH_RANGE:  # other pages have another `run`
        return address
    query = context["request"].GET
    kept = {name: query[name] for name in (*page.ranges, "since", "until", "run") if query.get(name)}
    return f"{address}?{urlencode(kept)}" if kept else address
