"""Find the suggestions of the search box: jobs by name or engine job ID, clusters, incidents by number, and pages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.db.models import Case, IntegerField, Value, When
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as noop

from dashboard.access.reach import FULL_REACH, Reach
from dashboard.language import rendered
from monitoring.models import Cluster, Incident, Job, Run
from monitoring.reasons.columns import stored

JOBS = 8
CLUSTERS = 4
# The beginning of an engine job ID. Shorter texts would find runs by accident.
_ENGINE_JOB_ID = re.compile(r"[0-9a-f]{8,32}")
_PAGES = {
    "Fleet": "fleet",
    "Incidents": "incidents",
    "Rules": "rules",
    "Savepoints": "savepoints",
    "Channels": "channels",
    "Messages": "deliveries",
    "Maintenance": "maintenance",
    "Automation": "automation",
    "Clusters": "clusters",
    "Health": "system-health",
    "Audit": "audit",
}
_GLOBAL_PAGES = ("channels", "system-health", "audit")  # pages that are offered only to readers of every cluster


@dataclass(frozen=True)
class Hit:
    """One suggestion. `kind` is its type in English, `name` the matched text, `about` for example the job's cluster."""

    kind: str
    name: str
    about: str
    url: str


def find_suggestions(text: str, reach: Reach = FULL_REACH) -> list[Hit]:
    """Return the suggestions within `reach` for a text, the best first.

    Names that begin with `text` precede names that only contain it. An empty text finds only the pages.
    """
    text = text.replace("\0", "").strip()[:200]
    pages = _pages(text, reach)
    if not text:
        return pages
    return [*_incidents(text, reach), *_jobs(text, reach), *_runs(text, reach), *_clusters(text, reach), *pages]


def _pages(text: str, reach: Reach) -> list[Hit]:
    """Return the pages whose title contains the text, in the page's language or in English."""
    offered = {name: url for name, url in _PAGES.items() if reach.is_unrestricted or url not in _GLOBAL_PAGES}
    return [
        Hit(noop("page"), _(name), "", reverse(url))
        for name, url in offered.items()
        if text.lower() in name.lower() or text.lower() in _(name).lower()
    ]


def _jobs(text: str, reach: Reach) -> list[Hit]:
    rows = Job.objects.filter(name__icontains=text, cluster__archived_at=None).select_related("cluster")
    found = reach.narrow(rows).order_by(_prefix_first(text), "name", "pk")[:JOBS]
    return [Hit(noop("job"), job.name, job.cluster.name, reverse("job", args=[job.pk])) for job in found]


def _runs(text: str, reach: Reach) -> list[Hit]:
    """Return the jobs with a run whose engine job ID begins with the text, each with its newest such run."""
    prefix = text.lower()
    if not _ENGINE_JOB_ID.fullmatch(prefix):
        return []
    # A range instead of LIKE: the index serves it in every collation, in which "g" comes after all hexadecimal digits.
    rows = Run.objects.filter(engine_job_id__gte=prefix, engine_job_id__lt=f"{prefix}g", job__cluster__archived_at=None)
    newest = reach.narrow(rows, "job").order_by("job_id", "-number").distinct("job_id")
    found = newest.values_list("job_id", "job__name", "number", "job__cluster__name")[:JOBS]
    return [
        Hit(noop("job"), name, f"{_('run %(number)s') % {'number': number}} · {cluster}", reverse("job", args=[pk]))
        for pk, name, number, cluster in found
    ]


def _clusters(text: str, reach: Reach) -> list[Hit]:
    rows = Cluster.objects.filter(name__icontains=text, archived_at=None)
    found = reach.narrow_clusters(rows).order_by(_prefix_first(text), "name", "pk")[:CLUSTERS]
    return [Hit(noop("cluster"), each.name, "", reverse("cluster", args=[each.pk])) for each in found]


def _incidents(text: str, reach: Reach) -> list[Hit]:
    """Return the incident with the number in the text, such as `#12` or `12`."""
    number = text.removeprefix("#")
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        return []
    found = reach.narrow_either(Incident.objects.filter(pk=int(number)))
    return [
        Hit(noop("incident"), f"#{each.pk}", rendered(stored(each, "sentence")), reverse("incident", args=[each.pk]))
        for each in found
    ]


def _prefix_first(text: str) -> Case:
    """Return an order in which names that begin with the text come first."""
    return Case(When(name__istartswith=text, then=Value(0)), default=Value(1), output_field=IntegerField())
