"""Roll-ups of checkpoints by job, operator and minute, hour or day. The pipeline in monitoring/history writes them."""

from __future__ import annotations

from django.db import models

from monitoring.models.jobs import Job


class Rollup(models.Model):
    """Totals of one job's checkpoints triggered within `seconds` (a minute, an hour or a UTC day) from `start` on.

    Figures are of completed checkpoints, in milliseconds and bytes; null: no checkpoint has the figure. Sketches have
    the form `version`, see history/sketches.py. `reasons` is JSON of {reason: failures}, or "". Minutes are kept
    for three hours. The job has no foreign key in the database, because the pipeline may write a row shortly after the
    job was deleted.
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


class OperatorRollup(models.Model):
    """Totals of one operator in one job's completed checkpoints, triggered within `seconds` from `start` on.

    `seconds` is a minute, an hour or a UTC day. `operator` is the operator's vertex ID. Figures are in milliseconds
    and bytes; null: no checkpoint has the figure. For the sketch, its `version` (0: an older program made the row,
    without a sketch) and the job's missing foreign key, see Rollup.
    """

    pk = models.CompositePrimaryKey("job_id", "seconds", "start", "operator")
    job = models.ForeignKey(
        Job, on_delete=models.CASCADE, related_name="operator_rollups", db_constraint=False, db_index=False
    )
    seconds = models.IntegerField()
    start = models.DateTimeField()
    operator = models.CharField(max_length=32)
    version = models.SmallIntegerField(db_default=0)
    completed = models.BigIntegerField()
    duration_sum = models.BigIntegerField(null=True)
    duration_min = models.BigIntegerField(null=True)
    duration_max = models.BigIntegerField(null=True)
    state_size_sum = models.BigIntegerField(null=True)
    state_size_min = models.BigIntegerField(null=True)
    state_size_max = models.BigIntegerField(null=True)
    checkpointed_size_sum = models.BigIntegerField(null=True)
    checkpointed_size_min = models.BigIntegerField(null=True)
    checkpointed_size_max = models.BigIntegerField(null=True)
    duration_sketch = models.BinaryField(db_default=b"")

    class Meta:
        indexes = (
            models.Index(fields=("start",), condition=models.Q(seconds=60), name="operators_of_minutes_by_time"),
        )

    def __str__(self) -> str:
        return f"{self.job}: operator {self.operator}, {self.seconds} s from {self.start}"


class RollupProgress(models.Model):
    """The only row says that roll-ups contain all changes of transactions below `done`.

    They may contain later ones, too.

    `program`: the version of the pipeline's program that wrote it last (columns.PROGRAM); null: an older one.
    `hours_from`: a midnight (UTC) before which roll-ups of hours are deleted. `hours_kept`: for how many days an older
    installation keeps roll-ups of hours if WAYMARK_HOURS_KEPT is not set; null: the default of 45 days.
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
    """A deleted checkpoint, so that its hour is rolled up again. A trigger in the database writes the row."""

    job_id = models.BigIntegerField()
    triggered_at = models.DateTimeField()
    deleted_in = models.BigIntegerField()  # the transaction's number, like Checkpoint.changed_in

    class Meta:
        indexes = (
            models.Index(fields=("deleted_in",), name="deletions_by_transaction"),
            models.Index(fields=("job_id", "triggered_at"), name="deletions_by_job"),
        )

    def __str__(self) -> str:
        return f"a checkpoint of job {self.job_id} at {self.triggered_at}"
