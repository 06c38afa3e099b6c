"""Clusters as the pages show them: state, number of jobs, and delay of the polls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Q
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from dashboard.access.reach import FULL_REACH, Reach
from dashboard.language import listed, rendered
from monitoring.engine.identity import Identity
from monitoring.engine.versions import EngineVersion
from monitoring.engine.zookeeper import base_path
from monitoring.models import Authentication, Cluster, Discovery, Job, RunState

LIVE = [state for state in RunState if not state.terminal]
# A cluster is "polled late" if its poll is overdue by more than 10 s and by more than this many poll intervals.
LATE_INTERVALS = 5.0
# The pages' text for each state; the REST API returns the state itself.
_LABELS = {
    "removed": _("removed"),
    "answers": _("reachable"),
    "late": _("polled late"),
    "ended": _("ended"),
    "no answer": _("unreachable"),
    "not watched": _("not monitored"),
    "not asked yet": _("not polled yet"),
    "another cluster": _("identity changed"),
    "secret not readable": _("unreadable secret"),
}
# Tones of the badges, in the order in which the clusters are sorted: clusters with problems come first.
_URGENCY = ("bad", "warn", "busy", "good", "calm")


@dataclass(frozen=True)
class ClusterCard:
    """One cluster with its state and job counts. `lag_s` is the time by which its next poll is overdue."""

    cluster: Cluster
    now: datetime
    jobs: int = 0
    running: int = 0
    states: dict[str, int] = field(default_factory=dict)

    @property
    def state(self) -> tuple[str, str]:
        """Return the state and the tone of its badge."""
        cluster = self.cluster
        if cluster.archived_at:
            return "removed", "calm"
        if not cluster.enabled:
            return "not watched", "calm"
        if cluster.stranger:
            return "another cluster", "bad"
        if self.secret_problem:
            return "secret not readable", "bad"
        if cluster.has_ended:
            return "ended", "calm"
        if not cluster.reachable:
            return "no answer", "bad"
        if cluster.last_answer_at is None:
            return "not asked yet", "busy"
        return ("late", "warn") if self.late else ("answers", "good")

    @property
    def label(self) -> str:
        """Return the text of the badge, in English."""
        return _LABELS[self.state[0]]

    @property
    def lag_s(self) -> int:
        due = self.cluster.next_poll_at
        return 0 if due is None or not self.cluster.enabled else max(0, round((self.now - due).total_seconds()))

    @property
    def late(self) -> bool:
        return self.lag_s > max(10.0, LATE_INTERVALS * self.cluster.poll_interval_s)

    @property
    def secret_problem(self) -> str:
        secrets = {
            _("Token"): self.cluster.token,
            _("Password"): self.cluster.password,
            _("Client key"): self.cluster.client_key,
            _("ZooKeeper password"): self.cluster.zookeeper_password,
        }
        problems = ((name, secret.problem()) for name, secret in secrets.items())
        return next((f"{gettext(name)}: {rendered(why)}" for name, why in problems if why), "")

    @property
    def version(self) -> EngineVersion:
        return EngineVersion.parse(self.cluster.version)

    @property
    def identity(self) -> Identity | None:
        return Identity.from_row(self.cluster.identity) if self.cluster.identity else None

    @property
    def stranger(self) -> Identity | None:
        return Identity.from_row(self.cluster.stranger) if self.cluster.stranger else None

    @property
    def through_zookeeper(self) -> bool:
        return self.cluster.discovery == Discovery.ZOOKEEPER

    @property
    def zookeeper_path(self) -> str:
        return base_path(self.cluster.zookeeper_root, self.cluster.zookeeper_cluster_id) or "/"

    @property
    def authentication(self) -> str:
        cluster = self.cluster
        text = {
            Authentication.BEARER: gettext("bearer token"),
            Authentication.BASIC: gettext("user name %(name)s and password") % {"name": cluster.username},
        }.get(Authentication(cluster.authentication), gettext("none"))
        return text + (gettext(", client certificate") if cluster.client_certificate else "")


@dataclass(frozen=True)
class Clusters:
    shown: list[ClusterCard]
    removed: list[ClusterCard]

    @property
    def sentence(self) -> str:
        """Summarize the states of the clusters."""
        labels = Counter(card.label for card in self.shown)
        total = len(self.shown)
        if labels["reachable"] == total:
            if total == 1:
                return gettext("The cluster is reachable.")
            return gettext("All %(total)s clusters are reachable.") % {"total": total}
        parts = (
            gettext("%(count)s %(label)s") % {"count": count, "label": gettext(label)}
            for label, count in labels.most_common()
        )
        return gettext("%(list)s.") % {"list": listed(parts)}


def read_clusters(now: datetime, reach: Reach = FULL_REACH) -> Clusters:
    """Return all clusters within `reach`, in two queries."""
    found = list(reach.narrow_clusters(Cluster.objects.all()))
    states = _job_states(Q())
    cards = [_card(cluster, states.get(cluster.pk, Counter()), now) for cluster in found]
    cards.sort(key=lambda card: _URGENCY.index(card.state[1]))
    return Clusters([c for c in cards if not c.cluster.archived_at], [c for c in cards if c.cluster.archived_at])


def read_cluster(cluster: Cluster, now: datetime) -> ClusterCard:
    return _card(cluster, _job_states(Q(cluster=cluster)).get(cluster.pk, Counter()), now)


def _card(cluster: Cluster, states: Counter[str], now: datetime) -> ClusterCard:
    running = sum(count for state, count in states.items() if state in LIVE)
    return ClusterCard(cluster, now, states.total(), running, dict(states.most_common()))


def _job_states(which: Q) -> dict[int, Counter[str]]:
    """Count the jobs of each cluster by the status of their current run."""
    found: dict[int, Counter[str]] = {}
    for cluster_id, state in Job.objects.filter(which).values_list("cluster_id", "current_run__state"):
        found.setdefault(cluster_id, Counter())[state or "no run"] += 1
    return found


def source_names(job: Job, reach: Reach = FULL_REACH) -> list[str]:
    """Return the names of the clusters through which Waymark sees the query of a watched job, the leading one first."""
    if not job.cluster.only_watched:
        return []
    seen = Cluster.objects.filter(query_sources__query__job=job, archived_at=None).exclude(pk=job.cluster_id)
    return [job.cluster.name, *reach.narrow_clusters(seen).order_by("name").values_list("name", flat=True).distinct()]
