"""Find incidents of the same kind that opened almost together on jobs of one cluster, or of one label."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from monitoring.alerts.kinds import kinds
from monitoring.alerts.scope import labels_of
from monitoring.alerts.selector import OWN_KEYS
from monitoring.models import Cluster, Incident, IncidentState
from monitoring.units import age_text

WITHIN = timedelta(minutes=2)
FEWEST_JOBS = 3
MOST_GROUPS, MOST_SHOWN = 5, 20
_EXAMINED = 1000


@dataclass(frozen=True)
class OpenIncident:
    """An unresolved incident of a job, with the labels of the job. `cluster` is the name of its cluster."""

    pk: int
    kind: str
    job: str
    cluster: str
    labels: Mapping[str, str]
    opened_at: datetime
    job_id: int


@dataclass(frozen=True)
class Correlation:
    """Incidents of one kind, oldest first. `label` is empty if they are those of a cluster: `place` is its name."""

    kind: str
    place: str
    label: str
    incidents: Sequence[OpenIncident]

    @property
    def jobs(self) -> int:
        return len({each.job_id for each in self.incidents})

    @property
    def began_at(self) -> datetime:
        return self.incidents[0].opened_at

    @property
    def sentence(self) -> str:
        """Return a sentence such as `7 jobs on cluster eu-prod slowed down within 2 min`."""
        if self.label:
            where = _("with the label %(label)s") % {"label": f"{self.label}={self.place}"}
        else:
            where = _("on cluster %(name)s") % {"name": self.place}
        took = max(self.incidents[-1].opened_at - self.began_at, timedelta(seconds=1))
        values = {"jobs": self.jobs, "where": where, "time": age_text(took)}
        match self.kind.removesuffix("_relative"):
            case "end_to_end_duration" | "alignment" | "start_delay":
                return _("%(jobs)s jobs %(where)s slowed down within %(time)s.") % values
            case "failed_in_window" | "failed_in_total" | "consecutive_failures":
                return _("Checkpoints of %(jobs)s jobs %(where)s failed within %(time)s.") % values
            case "no_completed_checkpoint":
                return _("%(jobs)s jobs %(where)s stopped completing checkpoints within %(time)s.") % values
            case "job_failed":
                return _("%(jobs)s jobs %(where)s failed within %(time)s.") % values
            case _:
                title = kinds()[self.kind].title if self.kind in kinds() else self.kind.replace("_", " ")
                text = _("%(jobs)s jobs %(where)s have the same problem, which began within %(time)s: %(problem)s.")
                return text % (values | {"problem": _(title)})

    @property
    def shown(self) -> Sequence[OpenIncident]:
        return self.incidents[:MOST_SHOWN]

    @property
    def left_out(self) -> int:
        return max(0, len(self.incidents) - MOST_SHOWN)


def correlations(incidents: Iterable[OpenIncident]) -> list[Correlation]:
    """Return the largest groups of at least FEWEST_JOBS jobs whose incidents of one kind opened WITHIN a time.

    An incident belongs to one group. Of two groups with equally many jobs, that of a cluster is preferred.
    """
    left = {each.pk: each for each in incidents}
    found: list[Correlation] = []
    while len(found) < MOST_GROUPS:
        largest = max(_candidates(left.values()), key=_weight, default=None)
        if largest is None:
            break
        found.append(largest)
        for each in largest.incidents:
            del left[each.pk]
    return sorted(found, key=lambda each: each.began_at, reverse=True)


def _weight(group: Correlation) -> tuple[int, bool, datetime, str]:
    return group.jobs, not group.label, group.began_at, group.place


def _candidates(incidents: Iterable[OpenIncident]) -> Iterator[Correlation]:
    """Yield the largest group of each kind and place."""
    placed: dict[tuple[str, str, str], list[OpenIncident]] = defaultdict(list)
    for each in incidents:
        placed[each.kind, each.cluster, ""].append(each)
        for key, value in each.labels.items():
            if key not in OWN_KEYS:
                placed[each.kind, value, key].append(each)
    for (kind, place, label), members in placed.items():
        together = _largest_window(sorted(members, key=lambda each: (each.opened_at, each.pk)))
        if len({each.job_id for each in together}) >= FEWEST_JOBS:
            yield Correlation(kind, place, label, together)


def _largest_window(ordered: Sequence[OpenIncident]) -> Sequence[OpenIncident]:
    best, first = (0, 0, 0), 0
    counts: dict[int, int] = defaultdict(int)
    for last, each in enumerate(ordered):
        counts[each.job_id] += 1
        while each.opened_at - ordered[first].opened_at > WITHIN:
            counts[ordered[first].job_id] -= 1
            if not counts[ordered[first].job_id]:
                del counts[ordered[first].job_id]
            first += 1
        best = max(best, (len(counts), first, last + 1))
    return ordered[best[1] : best[2]]


def read_correlations(incidents: QuerySet[Incident]) -> list[Correlation]:
    """Return the correlations of the newest unresolved incidents of jobs among `incidents`, by two statements."""
    unresolved = incidents.filter(job__isnull=False, cluster__isnull=False).exclude(state=IncidentState.RESOLVED)
    names = ("pk", "kind", "job__name", "job__labels", "cluster_id", "opened_at", "job_id")
    rows = list(unresolved.order_by("-opened_at", "-pk").values_list(*names)[:_EXAMINED])
    clusters = Cluster.objects.only("name", "engine", "labels").in_bulk({row[4] for row in rows})
    return correlations(
        OpenIncident(pk, kind, job, clusters[cluster].name, labels_of(job, labels, clusters[cluster]), at, job_id)
        for pk, kind, job, labels, cluster, at, job_id in rows
    )
