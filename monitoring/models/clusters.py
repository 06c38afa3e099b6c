"""Clusters: their addresses and credentials, their identities, and the state of polling."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.secret_field import SecretField
from monitoring.reasons.columns import ReasonField
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason


class Engine(models.TextChoices):
    UNKNOWN = "unknown", _("not known yet")
    FLINK = "flink", _("Apache Flink")
    SPARK = "spark", _("PySpark")
    STREAMING = "streaming", _("Spark Structured Streaming")


class Discovery(models.TextChoices):
    URL = "url", _("by URL")
    ZOOKEEPER = "zookeeper", _("through ZooKeeper")
    DIRECTORY = "directory", _("by checkpoint locations of Spark")
    AGENT = "agent", _("by the agent in programs of Spark")
    EVENT_LOG = "event_log", _("by event logs of Spark")


# The runs and batches of these clusters are in ReportedRun and ReportedBatch.
REPORTED_DISCOVERIES = (Discovery.AGENT, Discovery.EVENT_LOG)
# Waymark only watches the jobs of these clusters.
WATCHED_DISCOVERIES = (Discovery.DIRECTORY, *REPORTED_DISCOVERIES)


class Authentication(models.TextChoices):
    NONE = "none", _("none")
    BEARER = "bearer", _("bearer token")
    BASIC = "basic", _("user name and password")


class ZooKeeperAuthentication(models.TextChoices):
    NONE = "none", _("none")
    DIGEST = "digest", _("user name for ACLs (digest)")
    SASL = "sasl", _("log-in (SASL, DIGEST-MD5)")


class Cluster(models.Model):
    """A server with Flink's REST API, which is a Flink cluster or Waymark's job manager, or watched queries.

    A watched directory has checkpoint locations of streaming queries, or event logs of applications. With the agent,
    programs report their queries. Waymark cannot act on any of them: `only_watched`. But it copies the locations of a
    directory to savepoints, if there is a directory for them, `savepoint_target`.
    `rest_url` is the address of the requests. With ZooKeeper, it is the last known leader's address, "" before the
    first. For a directory, it is its path or fsspec address, and "" for the agent. `history_server` is the address of
    Flink's History Server, "" for none. Only monitoring.engine.connection reads the secrets.
    """

    name = models.CharField(max_length=100, unique=True)
    discovery = models.CharField(max_length=10, choices=Discovery.choices, default=Discovery.URL)
    # monitoring.outbound checks it. A URLField would refuse hosts without a dot, such as http://jobmanager:8081.
    rest_url = models.CharField(max_length=500, blank=True)
    history_server = models.CharField(max_length=500, blank=True, default="")
    savepoint_target = models.CharField(max_length=500, blank=True, default="")
    zookeeper_hosts = models.CharField(max_length=500, blank=True, default="")
    zookeeper_root = models.CharField(max_length=200, blank=True, default="")
    zookeeper_cluster_id = models.CharField(max_length=200, blank=True, default="")
    zookeeper_authentication = models.CharField(
        max_length=10, choices=ZooKeeperAuthentication.choices, default=ZooKeeperAuthentication.NONE
    )
    zookeeper_username = models.CharField(max_length=200, blank=True, default="")
    zookeeper_password = SecretField()
    # TLS to ZooKeeper uses the certificates below, too.
    zookeeper_tls = models.BooleanField(default=False)
    # When ZooKeeper last named the leader at `rest_url`, and why it names none now ("": it names one).
    leader_named_at = models.DateTimeField(null=True)
    leader_problem = models.TextField(blank=True, default="")
    leader_problem_value = ReasonField(null=True, blank=True)
    authentication = models.CharField(max_length=10, choices=Authentication.choices, default=Authentication.NONE)
    token = SecretField()
    username = models.CharField(max_length=200, blank=True, default="")
    password = SecretField()
    # PEM. Without a CA bundle, the system's is used. The client certificate (with its chain) and its key are for mutual
    # TLS.
    ca_bundle = models.TextField(blank=True, default="")
    client_certificate = models.TextField(blank=True, default="")
    client_key = SecretField()
    engine = models.CharField(max_length=10, choices=Engine.choices, default=Engine.UNKNOWN)
    version = models.CharField(max_length=50, blank=True, default="")
    # web.checkpoints.history: how many checkpoints of a job the engine remembers; None: not known.
    history_length = models.PositiveIntegerField(null=True)
    # web.refresh-interval: how long the engine caches its answer about a job's checkpoints; None: not known.
    answers_kept_s = models.FloatField(null=True)
    labels = models.JSONField(default=dict, blank=True)
    enabled = models.BooleanField(default=True)
    disabled_reason = models.TextField(blank=True, default="")
    disabled_reason_value = ReasonField(null=True, blank=True)
    # When the cluster was removed while it had jobs: it is neither shown nor polled, but its history stays.
    archived_at = models.DateTimeField(null=True)
    poll_interval_s = models.FloatField(default=3.0, validators=[MinValueValidator(1), MaxValueValidator(3600)])
    request_limit_s = models.FloatField(default=10.0, validators=[MinValueValidator(1), MaxValueValidator(60)])
    requests_at_once = models.PositiveSmallIntegerField(
        default=8, validators=[MinValueValidator(1), MaxValueValidator(64)]
    )
    # Scheduled savepoints: how many at the same time, and the time over which simultaneous ones are spread.
    savepoints_at_once = models.PositiveSmallIntegerField(default=4)
    savepoint_jitter_s = models.PositiveIntegerField(default=60)
    # The cluster's identity (monitoring.engine.identity), and that of another cluster that answers at its address now.
    identity = models.JSONField(null=True)
    stranger = models.JSONField(null=True)
    # The progress of the scan of a directory (checkpointing.watched.Scan, checkpointing.eventlogs.Logs); {}: none yet.
    scan = models.JSONField(default=dict)
    # The state of polling. A poll in progress holds a lease, `poll_claimed_until`, and a token, `poll_claimed_by`.
    next_poll_at = models.DateTimeField(db_index=True, null=True)
    poll_claimed_until = models.DateTimeField(null=True)
    poll_claimed_by = models.CharField(max_length=32, blank=True, default="")
    # Runs that were due up to this time were read.
    read_until = models.DateTimeField(null=True)
    # Increases with every poll that changes a run or a checkpoint, so that workers detect outdated copies.
    revision = models.BigIntegerField(default=0)
    last_answer_at = models.DateTimeField(null=True)
    unreachable_since = models.DateTimeField(null=True)
    consecutive_failures = models.PositiveIntegerField(default=0)
    last_error = models.TextField(blank=True, default="")
    last_error_value = ReasonField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def only_watched(self) -> bool:
        """Return whether Waymark can only read about the jobs, and never starts, stops or changes one."""
        return self.discovery in WATCHED_DISCOVERIES

    @property
    def can_save(self) -> bool:
        """Return whether jobs of the cluster can have savepoints."""
        return not self.only_watched or bool(self.savepoint_target)

    @property
    def why_not_controlled(self) -> Reason | None:
        """Return why Waymark cannot start or stop jobs of the cluster, None if it can."""
        if not self.only_watched:
            return None
        return EngineReason.ONLY_SAVED() if self.can_save else EngineReason.ONLY_WATCHED()

    @property
    def reachable(self) -> bool:
        """Return whether the cluster answered the last poll.

        A cluster that is not polled counts as unreachable, because nobody would see the effects of actions on its jobs.
        """
        return self.enabled and self.unreachable_since is None

    @property
    def has_ended(self) -> bool:
        """Return whether the cluster does not answer because it has ended with its only job (application mode)."""
        why: Reason | None = self.last_error_value
        is_silent = self.enabled and self.unreachable_since is not None and self.stranger is None
        return is_silent and why is not None and why.code is EngineReason.CLUSTER_ENDED
