"""The history: every checkpoint of every run, with its figures per operator and subtask.

Durations are in milliseconds and sizes in bytes, as the engine reports them. None: the engine did not report it.

The tables are partitioned by the trigger time (monitoring/history/partitions.py), so every unique key must include it.
Therefore the database does not ensure two rules. A run has one row per ID: polls ensure this under their cluster's
lock. Rows that refer to a checkpoint are deleted with it: Django and the dropping of partitions ensure this.
"""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.jobs import Run


class CheckpointStatus(models.TextChoices):
    IN_PROGRESS = "IN_PROGRESS", _("Pending")
    COMPLETED = "COMPLETED", _("Completed")
    FAILED = "FAILED", _("Failed")


class CheckpointType(models.TextChoices):
    CHECKPOINT = "CHECKPOINT", _("checkpoint")
    UNALIGNED_CHECKPOINT = "UNALIGNED_CHECKPOINT", _("unaligned checkpoint")
    SAVEPOINT = "SAVEPOINT", _("savepoint")
    SYNC_SAVEPOINT = "SYNC_SAVEPOINT", _("savepoint on stop")


class CheckpointRows(models.QuerySet["Checkpoint"]):
    def there(self) -> CheckpointRows:
        """Return completed checkpoints whose files should still exist.

        An engine discards the oldest first. So checkpoints that are older than a discarded one of the same run are
        gone, too. Polls may have missed that, because the job manager was replaced or the history rolled over.
        """
        gone = Checkpoint.objects.filter(
            run=models.OuterRef("run"), status=CheckpointStatus.COMPLETED, is_savepoint=False, discarded=True,
            triggered_at__gt=models.OuterRef("triggered_at"),
        )  # fmt: skip
        completed = self.filter(status=CheckpointStatus.COMPLETED, discarded=False).exclude(external_path="")
        return completed.filter(models.Q(is_savepoint=True) | ~models.Exists(gone))


class Checkpoint(models.Model):
    """One checkpoint or savepoint of one run. Its key is (run, checkpoint_id), so polling it again changes nothing.

    `triggered_at` never changes after it is stored, because it determines the row's partition. `archived` is True for
    an instance that was read from the archive.
    """

    archived = False

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="checkpoints")
    checkpoint_id = models.BigIntegerField()
    status = models.CharField(max_length=12, choices=CheckpointStatus.choices)
    is_savepoint = models.BooleanField(default=False)
    checkpoint_type = models.CharField(max_length=24, choices=CheckpointType.choices, default=CheckpointType.CHECKPOINT)
    savepoint_format = models.CharField(max_length=12, blank=True, default="")
    triggered_at = models.DateTimeField()
    latest_ack_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    failure_message = models.TextField(blank=True, default="")
    end_to_end_duration = models.BigIntegerField(null=True)
    checkpointed_size = models.BigIntegerField(null=True)
    state_size = models.BigIntegerField(null=True)
    processed_data = models.BigIntegerField(null=True)
    persisted_data = models.BigIntegerField(null=True)
    num_subtasks = models.PositiveIntegerField(default=0)
    num_acknowledged_subtasks = models.PositiveIntegerField(default=0)
    external_path = models.TextField(blank=True, default="")
    discarded = models.BooleanField(default=False)
    # The slowest subtask's figures, so that charts over many checkpoints need no join.
    alignment_max = models.BigIntegerField(null=True)
    start_delay_max = models.BigIntegerField(null=True)
    sync_max = models.BigIntegerField(null=True)
    async_max = models.BigIntegerField(null=True)
    # True if the status is final and the figures per subtask are stored or forgotten: the row is never read again.
    final = models.BooleanField(default=False)
    first_seen_at = models.DateTimeField(auto_now_add=True)
    # The transaction that last changed a figure, set by a trigger: the pipeline finds changed rows by it.
    changed_in = models.BigIntegerField(default=0, editable=False)

    objects = CheckpointRows.as_manager()

    class Meta:
        ordering = ("-triggered_at", "-checkpoint_id")
        constraints = (
            models.UniqueConstraint(
                fields=("run", "checkpoint_id", "triggered_at"), name="checkpoint_id_is_unique_per_run"
            ),
        )
        indexes = (
            models.Index(fields=("run", "-triggered_at")),
            models.Index(fields=("run", "status", "-triggered_at")),
            models.Index(fields=("run",), condition=models.Q(final=False), name="checkpoints_to_read_again"),
            models.Index(fields=("run",), condition=models.Q(is_savepoint=True), name="savepoints_of_a_run"),
            models.Index(fields=("failed_at",), condition=models.Q(status="FAILED"), name="failures_by_time"),
            models.Index(fields=("changed_in", "run"), name="checkpoints_by_change_and_run"),
        )

    def __str__(self) -> str:
        return f"{self.run} {'savepoint' if self.is_savepoint else 'checkpoint'} {self.checkpoint_id}"


class NewestCompleted(models.Model):
    """The newest completed checkpoint of a run, without savepoints, so that lists of jobs search no checkpoints.

    Triggers on the table of checkpoints write these rows (migration 0021). Nothing else may. So two transactions that
    write checkpoints of one run wait for each other. A row stays when its checkpoint is moved to the archive.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="newest_completed")
    checkpoint_id = models.BigIntegerField()
    triggered_at = models.DateTimeField()
    latest_ack_at = models.DateTimeField(null=True)
    end_to_end_duration = models.BigIntegerField(null=True)
    state_size = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.run} checkpoint {self.checkpoint_id}"


class OperatorCheckpoint(models.Model):
    """One operator's part of one checkpoint. Arrays are indexed by subtask; None: the subtask did not acknowledge."""

    archived = False

    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.CASCADE, related_name="operators", db_constraint=False, db_index=False
    )
    triggered_at = models.DateTimeField()  # the trigger time of the checkpoint
    vertex_id = models.CharField(max_length=32)
    name = models.TextField()
    position = models.PositiveSmallIntegerField(default=0)  # the operator's position in the job's list of vertices
    num_subtasks = models.PositiveIntegerField()
    num_acknowledged_subtasks = models.PositiveIntegerField()
    latest_ack_at = models.DateTimeField(null=True)
    end_to_end_duration = models.BigIntegerField(null=True)
    checkpointed_size = models.BigIntegerField(null=True)
    state_size = models.BigIntegerField(null=True)
    processed_data = models.BigIntegerField(null=True)
    persisted_data = models.BigIntegerField(null=True)
    subtask_ack_at = ArrayField(models.DateTimeField(null=True), default=list)
    subtask_end_to_end = ArrayField(models.BigIntegerField(null=True), default=list)
    subtask_checkpointed_size = ArrayField(models.BigIntegerField(null=True), default=list)
    subtask_state_size = ArrayField(models.BigIntegerField(null=True), default=list)
    subtask_sync = ArrayField(models.BigIntegerField(null=True), default=list)
    subtask_async = ArrayField(models.BigIntegerField(null=True), default=list)
    subtask_alignment = ArrayField(models.BigIntegerField(null=True), default=list)
    subtask_start_delay = ArrayField(models.BigIntegerField(null=True), default=list)
    subtask_processed = ArrayField(models.BigIntegerField(null=True), default=list)
    subtask_persisted = ArrayField(models.BigIntegerField(null=True), default=list)
    subtask_unaligned = ArrayField(models.BooleanField(null=True), default=list)
    subtask_aborted = ArrayField(models.BooleanField(null=True), default=list)

    class Meta:
        ordering = ("position",)
        constraints = (
            models.UniqueConstraint(
                fields=("checkpoint", "vertex_id", "triggered_at"), name="one_row_per_checkpoint_and_operator"
            ),
        )

    def __str__(self) -> str:
        return f"{self.checkpoint}: {self.name}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.triggered_at is None:
            self.triggered_at = self.checkpoint.triggered_at
        super().save(*args, **kwargs)


class CheckpointGap(models.Model):
    """Checkpoint IDs that the engine's short history dropped between two polls, such as during an outage."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="gaps")
    first_id = models.BigIntegerField()
    last_id = models.BigIntegerField()
    noticed_at = models.DateTimeField()

    class Meta:
        ordering = ("-first_id",)
        constraints = (models.UniqueConstraint(fields=("run", "first_id"), name="gap_is_noticed_once"),)

    def __str__(self) -> str:
        return f"{self.run}: {self.first_id}–{self.last_id} not seen"
