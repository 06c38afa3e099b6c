"""Other data that engines report about runs, stored permanently: counters, exceptions and configuration."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.jobs import Job, Run


class CounterSample(models.Model):
    """The engine's checkpoint counters of a run at the time `at`.

    A row is stored for every seen change of `failed` and `restored`, so their differences are exact. A row is also
    stored when a counter falls (a new job manager starts at zero). If only `total` and `completed` change, one row per
    minute is stored.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="counter_samples")
    at = models.DateTimeField()
    restored = models.BigIntegerField()
    total = models.BigIntegerField()
    in_progress = models.BigIntegerField()
    completed = models.BigIntegerField()
    failed = models.BigIntegerField()

    class Meta:
        ordering = ("run_id", "at")
        constraints = (models.UniqueConstraint(fields=("run", "at"), name="one_counter_sample_per_run_and_moment"),)

    def __str__(self) -> str:
        return f"{self.run} at {self.at:%H:%M:%S}: {self.completed} completed, {self.failed} failed"


class RunException(models.Model):
    """One entry of the engine's exception history, which the engine itself keeps short and loses."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="exception_rows")
    at = models.DateTimeField()
    name = models.TextField(blank=True, default="")  # the exception's class
    message = models.TextField(blank=True, default="")  # the exception's own message, one line
    root_cause = models.TextField(blank=True, default="")  # the innermost cause, one line
    task = models.TextField(blank=True, default="")  # the task with its subtask; empty: the whole job failed
    host = models.TextField(blank=True, default="")  # host:port of the task manager
    stacktrace = models.TextField(blank=True, default="")
    # Digest of time, class, task and root cause, which identifies the exception in later polls.
    digest = models.CharField(max_length=32)

    class Meta:
        ordering = ("-at", "-id")
        constraints = (models.UniqueConstraint(fields=("run", "digest"), name="an_exception_is_stored_once"),)
        indexes = (models.Index(fields=("run", "-at"), name="exceptions_by_time"),)

    def __str__(self) -> str:
        return f"{self.run}: {self.name} {self.message}"


class ConfigurationPart(models.TextChoices):
    CHECKPOINTING = "checkpointing", _("Checkpointing")
    EXECUTION = "execution", _("Execution")
    OPERATORS = "operators", _("Parallelism")


class JobConfiguration(models.Model):
    """A job's configuration at the last read: {part: {key: value}}, with hidden secrets."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="configuration")
    parts = models.JSONField(default=dict)
    since = models.DateTimeField()  # the time of the newest change, or of the first read

    def __str__(self) -> str:
        return f"{self.job} since {self.since}"


class ChangeKind(models.TextChoices):
    ADDED = "added", _("added")
    CHANGED = "changed", _("changed")
    REMOVED = "removed", _("removed")


class ConfigurationChange(models.Model):
    """A change of one key of a job's configuration, in the same run or in a later one."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="configuration_changes")
    run = models.ForeignKey(Run, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField()
    part = models.CharField(max_length=20, choices=ConfigurationPart.choices)
    key = models.TextField()
    kind = models.CharField(max_length=10, choices=ChangeKind.choices)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    class Meta:
        ordering = ("-at", "-id")
        indexes = (models.Index(fields=("job", "-at"), name="changes_by_time"),)

    def __str__(self) -> str:
        return f"{self.job}: {self.key} {self.kind}"
