"""Savepoints, from the request to the deletion, including savepoints that were taken elsewhere."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.checkpoints import Checkpoint
from monitoring.models.jobs import Job, Run
from monitoring.reasons.columns import ReasonField


class SavepointState(models.TextChoices):
    DEFERRED = "deferred", _("Deferred")  # due, but not possible now; `failure` says why
    REQUESTED = "requested", _("Requested")  # the row exists; the engine may or may not know the request
    IN_PROGRESS = "in_progress", _("In progress")
    COMPLETED = "completed", _("Completed")
    FAILED = "failed", _("Failed")
    DISPOSING = "disposing", _("Deleting")  # must not be restored: some of its files may be gone
    DISPOSED = "disposed", _("Deleted")

    @property
    def open(self) -> bool:
        return self in (SavepointState.REQUESTED, SavepointState.IN_PROGRESS)


class SavepointOrigin(models.TextChoices):
    SCHEDULED = "scheduled", _("schedule")
    MANUAL = "manual", _("manual")
    RESTART = "restart", _("before a restart")
    FINAL = "final", _("at the end of a run")
    ADOPTED = "adopted", _("taken elsewhere")
    OPERATOR = "operator", _("Flink operator")


def new_trigger_id() -> str:
    return uuid.uuid4().hex


class Savepoint(models.Model):
    """A savepoint. Waymark chooses and stores `trigger_id` before the request, so that a retry starts no second one."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="savepoints")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="savepoints")
    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.SET_NULL, null=True, related_name="+", db_constraint=False
    )
    trigger_id = models.CharField(max_length=32, unique=True, default=new_trigger_id)
    origin = models.CharField(max_length=10, choices=SavepointOrigin.choices)
    state = models.CharField(max_length=12, choices=SavepointState.choices, default=SavepointState.REQUESTED)
    stops_job = models.BooleanField(default=False)
    path = models.TextField(blank=True, default="")
    size = models.BigIntegerField(null=True)
    requested_by = models.CharField(max_length=150, blank=True, default="")
    requested_at = models.DateTimeField()
    # Stored before the request is sent. From then on the engine may know it, so it is looked up before a retry.
    posted_at = models.DateTimeField(null=True)
    forgotten_at = models.DateTimeField(null=True)  # when the engine no longer knew the trigger ID
    completed_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    next_check_at = models.DateTimeField(null=True, db_index=True)
    failure = models.TextField(blank=True, default="")
    failure_value = ReasonField(null=True)
    pinned = models.BooleanField(default=False)  # kept independent of the job's retention
    note = models.TextField(blank=True, default="")
    # When the files were last checked, and what was wrong; None: they were never checked.
    checked_at = models.DateTimeField(null=True)
    problem = models.TextField(blank=True, default="")
    problem_value = ReasonField(null=True)
    # When a check found no savepoint at `path`; None: no check has missed it.
    gone_at = models.DateTimeField(null=True)
    # Disposal: the reason, the engine's request ID ("" before a request and after a failure), and the number of
    # requests.
    disposal_reason = models.TextField(blank=True, default="")
    disposal_reason_value = ReasonField(null=True)
    disposal_request = models.CharField(max_length=64, blank=True, default="")
    disposal_tries = models.PositiveIntegerField(default=0)
    disposed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-requested_at", "-id")
        indexes = (models.Index(fields=("job", "-requested_at")),)
        constraints = (
            models.UniqueConstraint(
                fields=("job",),
                condition=models.Q(state__in=("requested", "in_progress")),
                name="one_savepoint_in_flight_per_job",
            ),
            models.UniqueConstraint(
                fields=("job",),
                condition=models.Q(state="deferred"),
                name="one_deferred_savepoint_per_job",
            ),
            models.UniqueConstraint(
                fields=("job", "path"), condition=~models.Q(path=""), name="a_savepoint_path_is_recorded_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.job} savepoint {self.trigger_id[:8]} ({self.state})"

    @property
    def is_usable(self) -> bool:
        """Return whether a job can be started from it, as far as its last check shows."""
        return self.state == SavepointState.COMPLETED and bool(self.path) and self.gone_at is None

    @property
    def took_ms(self) -> float | None:
        """Return the engine's duration in milliseconds.

        Without a checkpoint row, return the time from request to completion.
        """
        if self.checkpoint is not None and self.checkpoint.end_to_end_duration is not None:
            return self.checkpoint.end_to_end_duration
        return None if self.completed_at is None else (self.completed_at - self.requested_at).total_seconds() * 1000


class CheckedState(models.Model):
    """The last check of a retained checkpoint's files, and its problem. For savepoints, the Savepoint row stores it."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="checked_states")
    path = models.TextField()
    checked_at = models.DateTimeField()
    problem = models.TextField(blank=True, default="")
    problem_value = ReasonField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("job", "path"), name="a_state_is_checked_in_one_row"),)

    def __str__(self) -> str:
        return f"{self.path}: {self.problem or 'complete'}"
