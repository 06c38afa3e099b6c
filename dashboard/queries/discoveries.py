"""Sources that find clusters, and what they have found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, Q, When
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_noop as _

from monitoring.discovery.yarn import applications
from monitoring.kubernetes.job_resources import related_resources
from monitoring.kubernetes.kinds import EVENT, FLINK_SESSION_JOB, KINDS, POD
from monitoring.models import Cluster, DiscoverySource, FoundResource, WatchedKind
from monitoring.reasons.discoveries import DiscoveryReason

_KINDS = {kind.key: kind.name for kind in KINDS} | applications.NAMES
_LABELS = {
    "off": _("switched off"),
    "error": _("not readable"),
    "new": _("not read yet"),
    "problems": _("partly readable"),
    "reads": _("readable"),
}
SHOWN = 500
POD_SHOWN = timedelta(hours=1)
PODS_SHOWN = 10
EVENTS_SHOWN = 5


@dataclass(frozen=True)
class SourceCard:
    """A source with the number of resources that are not gone, of their clusters, and of those with a problem."""

    source: DiscoverySource
    resources: int
    clusters: int
    wrong: int
    problems: list[WatchedKind]
    missing: list[WatchedKind]

    @property
    def state(self) -> tuple[str, str]:
        """Return the state and the tone of its badge."""
        if not self.source.enabled:
            return "off", "calm"
        if self.source.last_error:
            return "error", "bad"
        if self.problems:
            return "problems", "warn"
        return ("new", "busy") if self.source.last_answer_at is None else ("reads", "good")

    @property
    def label(self) -> str:
        """Return the text of the badge, in English."""
        return _LABELS[self.state[0]]

    @property
    def missing_kinds(self) -> list[str]:
        return sorted({kind_name(row.kind) for row in self.missing})


@dataclass(frozen=True)
class ResourceRow:
    """A found resource for a page."""

    resource: FoundResource

    @property
    def kind(self) -> str:
        return kind_name(self.resource.kind)

    @property
    def is_spark(self) -> bool:
        return self.resource.kind.startswith("sparkapplications.")

    @property
    def application_id(self) -> str:
        """Return the id of an application of YARN, which its commands need, or ""."""
        return self.resource.uid if self.resource.kind in applications.NAMES else ""

    @property
    def ended_at(self) -> datetime | None:
        """Return when an application ended, None if it has not, or if YARN does not show it."""
        return parse_datetime(self.resource.state.get("ended_at", ""))

    @property
    def state(self) -> str:
        """Return what the operator or YARN reports, in its words."""
        state = self.resource.state
        names = (
            *("lifecycle", "manager", "job", "application", "final_status", "snapshot", "component", "pod"),
            *("event", "message"),
        )
        return " · ".join(dict.fromkeys(state[name] for name in names if name in state))


def kind_name(key: str) -> str:
    return _KINDS.get(key, key)


def read_sources(sources: Iterable[DiscoverySource] | None = None) -> list[SourceCard]:
    found = list(DiscoverySource.objects.all() if sources is None else sources)
    live = FoundResource.objects.filter(source__in=found, gone_at=None).exclude(kind=EVENT.key)
    counted = live.values("source").annotate(
        resources=Count("pk"), clusters=Count("cluster", distinct=True), wrong=Count("pk", filter=~Q(problem=""))
    )
    counts = {row["source"]: row for row in counted}
    kinds: dict[int, list[WatchedKind]] = {}
    for row in WatchedKind.objects.filter(source__in=found).exclude(problem="").order_by("kind", "namespace"):
        kinds.setdefault(row.source_id, []).append(row)
    return [_card(source, counts.get(source.pk, {}), kinds.get(source.pk, [])) for source in found]


def read_resources(source: DiscoverySource) -> list[ResourceRow]:
    """Return the resources that are not gone, at most SHOWN, those with a problem first."""
    rows = source.found_resources.filter(gone_at=None).exclude(kind=EVENT.key).select_related("cluster")
    is_fine = Case(When(problem="", then=1), default=0)
    return [ResourceRow(row) for row in rows.order_by(is_fine, "kind", "namespace", "name")[:SHOWN]]


def resources_of(cluster: Cluster, now: datetime, job_id: str = "") -> list[ResourceRow]:
    """Return the resources of a cluster: its deployment, the session jobs on it, pods with a trouble, and warnings.

    A pod or a warning is shown for an hour after it is gone, because it may explain why the job failed. With `job_id`,
    Flink's id of a job, only the session job with this id is included.
    """
    rows: list[ResourceRow] = []
    for own, same in related_resources(cluster):
        jobs = same.filter(kind=FLINK_SESSION_JOB.key, gone_at=None)
        if job_id:
            jobs = jobs.filter(state__job_id=job_id)
        lately = Q(gone_at=None) | Q(gone_at__gt=now - POD_SHOWN)
        pods = same.filter(lately, kind=POD.key).order_by("-changed_at")[:PODS_SHOWN]
        about = Q(deployment=own.name) | Q(state__session_job__in=[job.name for job in jobs])
        events = own.source.found_resources.filter(lately, about, namespace=own.namespace, kind=EVENT.key)
        rows += map(ResourceRow, (own, *jobs, *pods, *events.order_by("-changed_at")[:EVENTS_SHOWN]))
    return rows


def _card(source: DiscoverySource, counts: Mapping[str, Any], rows: list[WatchedKind]) -> SourceCard:
    def is_missing(row: WatchedKind) -> bool:
        return row.problem_value is not None and row.problem_value.code is DiscoveryReason.NOT_INSTALLED

    problems = [row for row in rows if not is_missing(row)]
    missing = [row for row in rows if is_missing(row)]
    numbers = {name: counts.get(name, 0) for name in ("resources", "clusters", "wrong")}
    return SourceCard(source, **numbers, problems=problems, missing=missing)
