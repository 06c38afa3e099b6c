"""Jobs and their runs.

A *job* is the lasting object; a *run* is one execution of the job on an engine (one engine job ID). History, rules and
savepoints belong to the job, so they survive restarts.
"""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.clusters import Cluster
from monitoring.models.sealed_json import SealedLaunchField
from monitoring.reasons.columns import ReasonField


class RestoreFrom(models.TextChoices):
    NEWEST = "newest", _("newest trusted snapshot of any type")
    SAVEPOINT = "savepoint", _("newest savepoint only")


class Job(models.Model):
    """A lasting job, matched to its runs by name and cluster.

    `epoch` is the number of restarts ever decided; a restart attempt is created by a compare-and-set on it.
    `launch` is how to start the job again, e.g. {"kind": "waymark", "jar_id", "entry_class", "program_args",
    "parallelism", "configuration"}; None: unknown, so the job can only be watched.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="jobs")
    name = models.CharField(max_length=500)
    labels = models.JSONField(default=dict, blank=True)
    launch = SealedLaunchField(null=True, blank=True)
    current_run = models.ForeignKey("Run", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    epoch = models.PositiveIntegerField(default=0)
    # Automation. A restart budget must be at least 1; `auto_restart` turns automatic restarts off.
    auto_restart = models.BooleanField(default=False)
    restore_from = models.CharField(max_length=10, choices=RestoreFrom.choices, default=RestoreFrom.NEWEST)
    max_restarts_per_hour = models.PositiveIntegerField(default=6)
    max_restarts_per_day = models.PositiveIntegerField(default=24)
    # Restart the job also if it is LOST: the engine answers but no longer knows the job.
    restart_on_lost = models.BooleanField(default=True)
    # An automatic restart does not use snapshots that are older than this at the failure; None: no limit.
    oldest_state_s = models.PositiveIntegerField(null=True, blank=True)
    allow_empty_start = models.BooleanField(default=False)
    # When the breaker opened after too many restarts, until a person closes it. Attempts before `budget_since` do not
    # count.
    breaker_opened_at = models.DateTimeField(null=True, blank=True)
    breaker_reason = models.TextField(blank=True, default="")
    breaker_reason_value = ReasonField(null=True, blank=True)
    budget_since = models.DateTimeField(null=True, blank=True)
    # The other system that restarts this job and takes its savepoints, such as a Kubernetes operator; "": Waymark does.
    managed_elsewhere = models.CharField(max_length=200, blank=True, default="")
    # Scheduled savepoints: at an interval or at the times of a cron expression; without both, there are none.
    savepoint_interval_s = models.PositiveIntegerField(null=True, blank=True)
    savepoint_cron = models.CharField(max_length=100, blank=True, default="")
    savepoint_time_zone = models.CharField(max_length=64, default="UTC")
    # A time range without scheduled savepoints: 22:00-06:00.
    savepoint_quiet = models.CharField(max_length=11, blank=True, default="")
    next_savepoint_at = models.DateTimeField(null=True, blank=True, db_index=True)
    # Where settings come from, by name (monitoring/job_defaults.py): "default", or "own" if a person set it.
    settings_from = models.JSONField(default=dict, blank=True)
    # Waymark keeps this many of its savepoints, up to this age; without both, it keeps all.
    savepoints_kept = models.PositiveIntegerField(null=True, blank=True)
    savepoints_kept_s = models.PositiveIntegerField(null=True, blank=True)
    # A job that ends by itself is run again at the times of this cron expression; "": only if a person requests it.
    run_cron = models.CharField(max_length=100, blank=True, default="")
    run_time_zone = models.CharField(max_length=64, default="UTC")
    run_cron_since = models.DateTimeField(null=True, blank=True)
    next_run_at = models.DateTimeField(null=True, blank=True, db_index=True)
    run_problem = models.TextField(blank=True, default="")  # why the last due run was not started
    run_problem_value = ReasonField(null=True, blank=True)
    # How many final savepoints are kept; None: all.
    final_savepoints_kept = models.PositiveIntegerField(null=True, blank=True, default=10)
    automation_paused = models.BooleanField(default=False)
    automation_paused_until = models.DateTimeField(null=True, blank=True)  # None: a pause lasts until a person ends it
    automation_note = models.TextField(blank=True, default="")
    automation_note_value = ReasonField(null=True, blank=True)  # None: a person wrote `automation_note`
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("cluster", "name"), name="one_job_per_name_and_cluster"),
            models.CheckConstraint(
                condition=models.Q(savepoint_interval_s=None) | models.Q(savepoint_cron=""),
                name="one_savepoint_schedule_per_job",
            ),
            models.CheckConstraint(
                condition=models.Q(max_restarts_per_hour__gte=1, max_restarts_per_day__gte=1),
                name="a_restart_budget_of_at_least_one",
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def scheduled(self) -> bool:
        """Return whether the job has scheduled savepoints."""
        return self.savepoint_interval_s is not None or bool(self.savepoint_cron)


class RunState(models.TextChoices):
    """Flink's JobStatus, and LOST. Pages check whether a status is current: dashboard/health.py."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"
    # The engine answers and does not know the job any more (after the hold-down).
    LOST = "LOST"

    @property
    def terminal(self) -> bool:
        return self in (RunState.FAILED, RunState.CANCELED, RunState.FINISHED, RunState.LOST)


class Run(models.Model):
    """One run of a job, with one engine job ID.

    `state` is the last status that the engine reported, `observed_at` the time of its last news.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="runs")
    number = models.PositiveIntegerField()
    engine_job_id = models.CharField(max_length=32)
    # How the run was started, if known: the version of the program to which its savepoints belong.
    launch_version = models.ForeignKey("LaunchVersion", on_delete=models.SET_NULL, null=True, related_name="runs")
    state = models.CharField(max_length=20, choices=RunState.choices)
    observed_at = models.DateTimeField()
    moved_at = models.DateTimeField(null=True)  # the engine's `last-modification` when the run was last read
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    # When Waymark saw the end, by Waymark's clock; None: the run has not ended, or it ended long before it was first
    # seen.
    end_seen_at = models.DateTimeField(null=True)
    # When the engine last accepted a request of Waymark to cancel the run, by Waymark's clock; None: it has not.
    cancel_accepted_at = models.DateTimeField(null=True)
    # Since when the engine's answers lack this job (hold-down before LOST); None: the engine lists it.
    missing_since = models.DateTimeField(null=True)
    missing_polls = models.PositiveIntegerField(default=0)
    vertices = models.JSONField(
        default=list
    )  # [{"id", "name", "parallelism", "inputs": [id]}], "inputs" only if the engine sent a plan
    # /checkpoints/config as the engine sent it, but `interval` is null without periodic checkpoints
    checkpoint_config = models.JSONField(default=dict)
    counts = models.JSONField(default=dict)  # "counts" of the engine's /checkpoints
    summary = models.JSONField(default=dict)  # "summary" of the engine's /checkpoints
    restored_path = models.TextField(blank=True, default="")
    restored_checkpoint_id = models.BigIntegerField(null=True)
    restored_is_savepoint = models.BooleanField(null=True)
    restored_at = models.DateTimeField(null=True)
    exception = models.TextField(blank=True, default="")  # newest root cause, one line
    exceptions = models.JSONField(default=list)  # newest first: [{"name", "message", "stacktrace", "at", "task"}]
    # The last read had a problem: the run is read again at this time, independent of its schedule (polling/plan.py).
    next_read_at = models.DateTimeField(null=True)
    # What a run that ended by itself saved: {"saved", "savepoint", "state", "rows", "batches"}, see
    # engine/answers/jobs.py; {}: the run did not end by itself, or the engine does not report it.
    outcome = models.JSONField(default=dict)
    # Why a run in CREATED waits until its driver may start: "for", "since" and fields of that reason, see LaunchWait in
    # engine/answers/jobs.py; {}: the run does not wait.
    launch_wait = models.JSONField(default=dict)
    # Of a watched query: the offsets and the watermark of its newest batch that Waymark read, see Position in
    # engine/answers/jobs.py; {}: not read, or not such a query.
    position = models.JSONField(default=dict)
    # Whether the last checkpoints of an ended run were read after its end.
    final_read_done = models.BooleanField(default=False)
    # The engine started a new run under the same job ID, which belongs to the next run now.
    superseded = models.BooleanField(default=False)

    class Meta:
        ordering = ("-number",)
        constraints = (
            models.UniqueConstraint(fields=("job", "number"), name="run_number_is_unique_per_job"),
            models.UniqueConstraint(
                fields=("job", "engine_job_id"),
                condition=models.Q(superseded=False),
                name="engine_job_id_is_unique_per_job",
            ),
        )
        indexes = (models.Index(fields=("engine_job_id",)),)

    def __str__(self) -> str:
        return f"{self.job} run {self.number}"

    @property
    def live(self) -> bool:
        return not RunState(self.state).terminal

    def seen_at(self, answered_at: datetime | None) -> datetime:
        """Return when the engine last reported this status.

        Every answer of the cluster lists a live run; the last answer was at `answered_at`.
        """
        named = answered_at is not None and self.live and self.missing_since is None
        return max(self.observed_at, answered_at) if named and answered_at else self.observed_at


class RunStateChange(models.Model):
    """A status change of a run as Waymark saw it: from, to, when, why."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="state_changes")
    at = models.DateTimeField()
    source = models.CharField(max_length=20, blank=True, default="")
    target = models.CharField(max_length=20)
    why = models.TextField(blank=True, default="")
    why_value = ReasonField(null=True)

    class Meta:
        ordering = ("-at", "-id")
        indexes = (models.Index(fields=("run", "-at")),)

    def __str__(self) -> str:
        return f"{self.run}: {self.source} → {self.target}"
