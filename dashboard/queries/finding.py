"""What the search box offers while somebody types: jobs, clusters, incidents by number, and pages."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Case, IntegerField, Value, When
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as noop

from dashboard.access.reach import EVERYTHING, Reach
from dashboard.language import rendered
from monitoring.models import Cluster, Incident, Job
from monitoring.reasons.columns import stored

JOBS = 8
CLUSTERS = 4
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
_OF_ALL = ("channels", "system-health", "audit")  # only for those who see everything


@dataclass(frozen=True)
class Hit:
    """`kind` says what it is, in English, `name` is what was looked for, `about` where it belongs."""

    kind: str
    name: str
    about: str
    url: str


def find(text: str, reach: Reach = EVERYTHING) -> list[Hit]:
    """Of what may be seen, the best first: names that begin with `text` before those that only contain it. Nothing for
    an empty text but the pages."""
    text = text.replace("\0", "").strip()[:200]
    pages = _pages(text, reach)
    return [*_incidents(text, reach), *_jobs(text, reach), *_clusters(text, reach), *pages] if text else pages


def _pages(text: str, reach: Reach) -> list[Hit]:
    """By what they are called in the page's language, and in English, as documents and colleagues call them."""
    offered = {name: url for name, url in _PAGES.items() if reach.sees_everything or url not in _OF_ALL}
    return [
        Hit(noop("page"), _(name), "", reverse(url))
        for name, url in offered.items()
        if text.lower() in name.lower() or text.lower() in _(name).lower()
    ]


def _jobs(text: str, reach: Reach) -> list[Hit]:
    rows = Job.objects.filter(name__icontains=text, cluster__archived_at=None).select_related("cluster")
    found = reach.narrow(rows).order_by(_beginning(text), "name", "pk")[:JOBS]
    return [Hit(noop("job"), job.name, job.cluster.name, reverse("job", args=[job.pk])) for job in found]


def _clusters(text: str, reach: Reach) -> list[Hit]:
    rows = Cluster.objects.filter(name__icontains=text, archived_at=None)
    found = reach.narrow_clusters(rows).order_by(_beginning(text), "name", "pk")[:CLUSTERS]
    return [Hit(noop("cluster"), each.name, "", reverse("cluster", args=[each.pk])) for each in found]


def _incidents(text: str, reach: Reach) -> list[Hit]:
    """`#12` and `12` are the incident of that number."""
    number = text.removeprefix("#")
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        return []
    found = reach.narrow_either(Incident.objects.filter(pk=int(number)))
    return [
        Hit(noop("incident"), f"#{each.pk}", rendered(stored(each, "sentence")), reverse("incident", args=[each.pk]))
        for each in found
    ]


def _beginning(text: str) -> Case:
    """Names that begin with it come first."""
    return Case(When(name__istartswith=text, then=Value(0)), default=Value(1), output_field=IntegerField())
