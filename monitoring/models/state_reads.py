"""Queries of people about the state in a snapshot. A worker stores the answer, and the page polls for it."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.jobs import Job
from monitoring.reasons.columns import ReasonField


class StateReadKind(models.TextChoices):
    LIST = "list", _("what it holds")
    READ = "read", _("keys and values")
    SIZES = "sizes", _("rows by partition")
    DIFF = "diff", _("what changed")


class StateReadState(models.TextChoices):
    WAITING = "waiting", _("Waiting")
    RUNNING = "running", _("Reading")
    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")

    @property
    def open(self) -> bool:
        return self in (StateReadState.WAITING, StateReadState.RUNNING)


class StateRead(models.Model):
    """One query. `location` and `other_location` are copied from stored checkpoints of the job, never typed."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="state_reads")
    kind = models.CharField(max_length=5, choices=StateReadKind.choices)
    state = models.CharField(max_length=8, choices=StateReadState.choices, default=StateReadState.WAITING)
    snapshot = models.BigIntegerField()  # the Checkpoint's key; its row may be deleted before this one
    location = models.TextField()
    label = models.CharField(max_length=120)  # "savepoint 42 of run 3"
    label_value = ReasonField(null=True)
    other_snapshot = models.BigIntegerField(null=True)
    other_location = models.TextField(blank=True, default="")
    other_label = models.CharField(max_length=120, blank=True, default="")
    other_label_value = ReasonField(null=True)
    query = models.TextField(blank=True, default="")
    operator = models.IntegerField(null=True)
    view = models.TextField(blank=True, default="")
    key_field = models.TextField(blank=True, default="")
    key_text = models.TextField(blank=True, default="")
    contains = models.TextField(blank=True, default="")
    partition = models.IntegerField(null=True)
    most = models.PositiveSmallIntegerField(default=100)  # limit of the rows, or of the keys for each kind of change
    asked_by = models.CharField(max_length=150)
    asked_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    claimed_until = models.DateTimeField(null=True)  # a worker that has not answered by this time is considered dead
    ended_at = models.DateTimeField(null=True)
    answer = models.JSONField(null=True)  # the output of `manage.py state … --json`
    problem = models.TextField(blank=True, default="")
    problem_value = ReasonField(null=True)

    class Meta:
        ordering = ("-asked_at", "-id")
        constraints = (
            # Each query may start a JVM, so only one runs at a time over all workers.
            models.UniqueConstraint(
                fields=("state",), condition=models.Q(state="running"), name="one_state_read_at_a_time"
            ),
        )
        indexes = (models.Index(fields=("job", "snapshot", "-asked_at"), name="state_reads_of_a_snapshot"),)

    def __str__(self) -> str:
        return f"{self.label}: {self.get_kind_display()} ({self.state})"
