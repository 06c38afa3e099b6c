"""The pages of a job are in six tabs, and each page has the URL that it had as a tab."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import Cluster, Engine, Job
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

TABS = {
    "Overview": {"job": "Overview", "job-summary": "Summary"},
    "History": {"job-history": "Checkpoints", "job-runs": "Runs"},
    "Savepoints &amp; restarts": {"job-savepoints": "Savepoints", "job-restarts": "Restarts"},
    "Alerts": {"job-alerts": "Alerts"},
    "Configuration &amp; state": {"job-configuration": "Configuration", "job-state": "State"},
    "Exceptions &amp; logs": {"job-exceptions": "Exceptions", "job-logs": "Logs"},
}
PAGES = [(tab, name) for tab, pages in TABS.items() for name in pages]
_NAV = re.compile(r'<nav class="[^"]*" aria-label="([^"]*)">(.*?)</nav>', re.DOTALL)
_LINK = re.compile(r'<a href="([^"]*)"(?: aria-current="([a-z]*)")?>([^<]*)</a>')


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=3))
    return job


def links(client: Client, job: Job, name: str) -> dict[str, list[tuple[str, str, str]]]:
    """Return address, `aria-current` and text of each link of the tabs and of the pages of the current tab."""
    page = client.get(reverse(name, args=[job.pk])).content.decode()
    return {label: _LINK.findall(inner) for label, inner in _NAV.findall(page[page.index('id="job-header"') :])}


def test_job_has_six_tabs(operator: Client, job: Job) -> None:
    tabs = links(operator, job, "job")["Job pages"]
    first = [reverse(next(iter(pages)), args=[job.pk]) for pages in TABS.values()]
    assert [(address, text) for address, _current, text in tabs] == list(zip(first, TABS, strict=True))


@pytest.mark.parametrize(("tab", "name"), PAGES)
def test_each_page_marks_itself_and_its_tab(operator: Client, job: Job, tab: str, name: str) -> None:
    if name == "job-logs":
        job = make.make_job(job.cluster, "never-run")  # it has no log to request
    found = links(operator, job, name)
    alone = len(TABS[tab]) == 1
    assert [(text, current) for _address, current, text in found["Job pages"] if current] == [
        (tab, "page" if alone else "true")
    ]
    pages = [(reverse(each, args=[job.pk]), "page" * (each == name), text) for each, text in TABS[tab].items()]
    assert found.get(tab, []) == ([] if alone else pages)


def test_tab_with_a_single_page_has_the_name_of_the_page(viewer: Client, operator: Client, job: Job) -> None:
    assert [text for *_, text in links(viewer, job, "job")["Job pages"]][-1] == "Exceptions"
    Cluster.objects.update(engine=Engine.FLINK)
    assert [text for *_, text in links(operator, job, "job")["Job pages"]][-1] == "Exceptions"


def test_comparison_belongs_to_the_history(operator: Client, job: Job) -> None:
    current = [text for _address, current, text in links(operator, job, "job-compare")["Job pages"] if current]
    assert current == ["History"]
