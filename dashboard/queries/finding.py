"""What the search box offers while somebody types: jobs, clusters, incidents by number, and pages."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Case, IntegerField, Value, When
from django.urls import reverse

from monitoring.models import Cluster, Incident, Job

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


@dataclass(frozen=True)
class Hit:
    """`kind` says what it is, `name` is what was looked for, `about` where it belongs."""

    kind: str
    name: str
    about: str
    url: str


def find(text: str) -> list[Hit]:
    """The best first: names that begin with `text` before those that only contain it. Nothing for an empty text but
    the pages."""
    text = text.replace("\0", "").strip()[:200]
    pages = [Hit("page", name, "", reverse(url)) for name, url in _PAGES.items() if text.lower() in name.lower()]
    return [*_incidents(text), *_jobs(text), *_clusters(text), *pages] if text else pages


def _jobs(text: str) -> list[Hit]:
    rows = Job.objects.filter(name__icontains=text, cluster__archived_at=None).select_related("cluster")
    found = rows.order_by(_beginning(text), "name", "pk")[:JOBS]
    return [Hit("job", job.name, job.cluster.name, reverse("job", args=[job.pk])) for job in found]


def _clusters(text: str) -> list[Hit]:
    rows = Cluster.objects.filter(name__icontains=text, archived_at=None)
    found = rows.order_by(_beginning(text), "name", "pk")[:CLUSTERS]
    return [Hit("cluster", each.name, "", reverse("cluster", args=[each.pk])) for each in found]


def _incidents(text: str) -> list[Hit]:
    """`#12` and `12` are the incident of that number."""
    number = text.removeprefix("#")
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        return []
    found = Incident.objects.filter(pk=int(number))
    return [Hit("incident", f"#{each.pk}", each.sentence, reverse("incident", args=[each.pk])) for each in found]


def _beginning(text: str) -> Case:
    """Names that begin with it come first."""
    return Case(When(name__istartswith=text, then=Value(0)), default=Value(1), output_field=IntegerField())
