"""What years of checkpoints come to: by job and minute, hour or day. Written by the pipeline, monitoring/history."""

from __future__ import annotations

from django.db import models

from monitoring.models.jobs import Job


class Rollup(models.Model):
    """One job's checkpoints that were triggered within `seconds` (a minute, an hour or a UTC day) from `start` on.

    Figures are of completed ones that tell them, in milliseconds and bytes; null: none does. Sketches are of the
    form `version`, see history/pipeline/sketch.py. `reasons`: JSON of {reason: failures}, or "". Minutes are kept for
    two days. No key leads to the job in the database: the pipeline may be a moment behind a job that is removed.
    """

    pk = models.CompositePrimaryKey("job_id", "seconds", "start")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="rollups", db_constraint=False, db_index=False)
    seconds = models.IntegerField()
    start = models.DateTimeField()
    version = models.SmallIntegerField()
    completed = models.BigIntegerField()
    failed = models.BigIntegerField()
    pending = models.BigIntegerField()
    completed_savepoints = models.BigIntegerField()
    failed_savepoints = models.BigIntegerField()
    duration_sum = models.BigIntegerField(null=True)
    duration_min = models.BigIntegerField(null=True)
    duration_max = models.BigIntegerField(null=True)
    alignment_sum = models.BigIntegerField(null=True)
    alignment_min = models.BigIntegerField(null=True)
    alignment_max = models.BigIntegerField(null=True)
    start_delay_sum = models.BigIntegerField(null=True)
    start_delay_min = models.BigIntegerField(null=True)
    start_delay_max = models.BigIntegerField(null=True)
    state_size_sum = models.BigIntegerField(null=True)
    state_size_min = models.BigIntegerField(null=True)
    state_size_max = models.BigIntegerField(null=True)
    checkpointed_size_sum = models.BigIntegerField(null=True)
    checkpointed_size_min = models.BigIntegerField(null=True)
    checkpointed_size_max = models.BigIntegerField(null=True)
    processed_sum = models.BigIntegerField(null=True)
    processed_min = models.BigIntegerField(null=True)
    processed_max = models.BigIntegerField(null=True)
    duration_sketch = models.BinaryField()
    alignment_sketch = models.BinaryField()
    start_delay_sketch = models.BinaryField()
    state_size_sketch = models.BinaryField()
    checkpointed_size_sketch = models.BinaryField()
    processed_sketch = models.BinaryField()
    reasons = models.TextField(blank=True, default="")

    class Meta:
        indexes = (models.Index(fields=("start",), condition=models.Q(seconds=60), name="rollups_of_minutes_by_time"),)

    def __str__(self) -> str:
        return f"{self.job}: {self.seconds} s from {self.start}"


class RollupProgress(models.Model):
    """One row: what transactions below `done` changed is in the roll-ups. It may say less than there is, never more.

    `program`: what the pipeline that wrote it last is able to do (columns.PROGRAM); null: it is older than that.
    `hours_from`: a midnight (UTC) before which roll-ups of hours are gone, or go. `hours_kept`: for so many days an
    installation keeps them that did before 45 were enough, where WAYMARK_HOURS_KEPT says nothing.
    """

    id = models.PositiveSmallIntegerField(primary_key=True)
    done = models.BigIntegerField()
    at = models.DateTimeField()
    program = models.PositiveSmallIntegerField(null=True)
    hours_from = models.DateTimeField(null=True)
    hours_kept = models.PositiveIntegerField(null=True)

    def __str__(self) -> str:
        return f"roll-ups up to transaction {self.done}"


class CheckpointDeletion(models.Model):
    """A checkpoint whose row was deleted, so that its hour is rolled up anew. Written by the database."""

    job_id = models.BigIntegerField()
    triggered_at = models.DateTimeField()
    deleted_in = models.BigIntegerField()  # the transaction's number, as Checkpoint.changed_in

    class Meta:
        indexes = (
            models.Index(fields=("deleted_in",), name="deletions_by_transaction"),
            models.Index(fields=("job_id", "triggered_at"), name="deletions_by_job"),
        )

    def __str__(self) -> str:
        return f"a checkpoint of job {self.job_id} at {self.triggered_at}"
