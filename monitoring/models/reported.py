"""What programs with the agent (deploy/agent) have reported about their streaming queries, until it is polled."""

from __future__ import annotations

from django.db import models

from monitoring.models.clusters import Cluster


class ReportedRun(models.Model):
    """A run of a streaming query. The ids are Spark's, as 32 hexadecimal digits; `query_id` survives restarts.

    `name`: the name of the job. `first_batch`, `newest_batch`: None before the first report of a batch. `dropped`: how
    many batches the agent could not report. `last_id` is the key of its newest ReportedBatch, so that pollers notice
    news.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="reported_runs")
    query_id = models.CharField(max_length=32)
    run_id = models.CharField(max_length=32)
    name = models.CharField(max_length=500)
    program = models.CharField(max_length=200, blank=True, default="")
    spark_version = models.CharField(max_length=50, blank=True, default="")
    started_at = models.DateTimeField()
    # When Spark last found no new input; None: never, or not reported.
    idle_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    # The next run of the query shows that this one has ended. Why it ended is not known.
    was_replaced = models.BooleanField(default=False)
    exception = models.TextField(null=True)
    reported_at = models.DateTimeField()
    dropped = models.PositiveIntegerField(default=0)
    first_batch = models.BigIntegerField(null=True)
    newest_batch = models.BigIntegerField(null=True)
    last_id = models.BigIntegerField(default=0)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "run_id"), name="one_reported_run_per_cluster"),)
        indexes = (models.Index(fields=("cluster", "name"), name="reported_runs_of_a_job"),)

    def __str__(self) -> str:
        return f"{self.name} {self.run_id[:8]}"


class ReportedBatch(models.Model):
    """Spark's progress of one batch, with Spark's names. Only the newest ones of a run stay.

    `state_size`: in bytes; None: Spark does not report it, or the query has no state.
    """

    run = models.ForeignKey(ReportedRun, on_delete=models.CASCADE, related_name="batches")
    batch_id = models.BigIntegerField()
    started_at = models.DateTimeField()
    duration_ms = models.BigIntegerField(null=True)
    state_size = models.BigIntegerField(null=True)
    progress = models.JSONField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("run", "batch_id"), name="one_report_per_batch"),)

    def __str__(self) -> str:
        return f"{self.run} batch {self.batch_id}"


class ReportedMinute(models.Model):
    """How many rows a run has read in the batches that started within the minute from `at` on.

    `rows` is None if a batch since the minute before was not reported, or not its rows.
    """

    run = models.ForeignKey(ReportedRun, on_delete=models.CASCADE, related_name="minutes")
    at = models.DateTimeField()
    rows = models.BigIntegerField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("run", "at"), name="one_row_per_reported_minute"),)

    def __str__(self) -> str:
        return f"{self.run} at {self.at:%H:%M}: {self.rows} rows"
