"""The archived parts of the history (monitoring/history/archive), and their files."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from monitoring.reasons.columns import ReasonField


class ArchivedKind(models.TextChoices):
    CHECKPOINTS = "checkpoints", "checkpoints"
    OPERATORS = "operators", "operators of checkpoints"
    SAMPLES = "samples", "counter samples"


class ArchivedState(models.TextChoices):
    WRITTEN = "written", "written and verified; its rows are still in PostgreSQL"
    LIVE = "live", "read from here; its rows are in PostgreSQL no more"
    GOING = "going", "replaced, or of rows that changed; it is being removed"
    EXPIRED = "expired", "older than the archive is kept; it is being removed"
    REMOVED = "removed", "older than the archive is kept, and removed"


# If a cluster's day is in the range of such a file, PostgreSQL has only some of its checkpoints and its roll-ups are
# final: only late checkpoints change them.
FINAL = (ArchivedState.LIVE, ArchivedState.EXPIRED, ArchivedState.REMOVED)


class ArchivedFile(models.Model):
    """One Parquet file: rows of one kind, cluster and month (UTC), from `since` to before `until`.

    The ranges of files may overlap, but each row is in one LIVE file only. `path` is below the archive's location.
    Cluster and runs are not foreign keys, because the archive outlives them.
    """

    kind = models.CharField(max_length=12, choices=ArchivedKind.choices)
    cluster_id = models.BigIntegerField()
    month = models.DateField()  # the first day of the month
    since = models.DateTimeField()
    until = models.DateTimeField()
    path = models.CharField(max_length=300, unique=True)
    rows = models.BigIntegerField()
    size = models.BigIntegerField()  # in bytes
    sha256 = models.CharField(max_length=64)
    footer_sha256 = models.CharField(max_length=64)  # SHA-256 of the file's footer, which has the positions of all data
    least_id = models.BigIntegerField()
    greatest_id = models.BigIntegerField()
    # For checkpoints and samples: the runs with rows in the file, and the number of rows of each, in the same order.
    runs = ArrayField(models.BigIntegerField(), default=list)
    rows_by_run = ArrayField(models.BigIntegerField(), default=list)
    state = models.CharField(max_length=8, choices=ArchivedState.choices, default=ArchivedState.WRITTEN)
    # Why the last attempt to read the file failed; "": the last attempt succeeded.
    problem = models.TextField(blank=True, default="")
    problem_value = ReasonField(null=True)
    made_at = models.DateTimeField(auto_now_add=True)
    checked_at = models.DateTimeField(null=True)  # when the whole content of the file was last compared with `sha256`

    class Meta:
        ordering = ("month", "cluster_id", "since")
        indexes = (
            models.Index(fields=("kind", "cluster_id", "month"), name="archive_by_cluster_and_month"),
            models.Index(fields=("kind", "least_id", "greatest_id"), name="archive_by_id"),
        )

    def __str__(self) -> str:
        return self.path


class PartitionTouch(models.Model):
    """A change of a row in a partition while it is being archived, so that its day must be archived again.

    In the partition `_before`, it is a checkpoint that arrived or changed late, whose day may be archived already. A
    trigger in the database writes these rows.
    """

    partition = models.CharField(max_length=63)
    moment = models.DateTimeField()  # the trigger time of the checkpoint, or the time of the sample

    class Meta:
        indexes = (models.Index(fields=("partition",), name="touches_by_partition"),)

    def __str__(self) -> str:
        return f"{self.partition}: {self.moment}"
