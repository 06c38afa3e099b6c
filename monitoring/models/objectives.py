"""Objectives for the checkpoints of jobs, and how far their budgets are used up."""

from __future__ import annotations

from django.db import models

from monitoring.models.jobs import Job


class Objective(models.Model):
    """A goal: `percent` of the checkpoints of `days` UTC days complete in less than `limit_ms`.

    It is the goal of one job, or of the jobs that the label selector chooses (empty: all jobs). The goal of the job
    itself comes first, then the first selector in alphabetical order that matches, then the goal of all jobs.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, null=True, blank=True, related_name="objective")
    selector = models.CharField(max_length=500, blank=True, default="")
    percent = models.FloatField()
    limit_ms = models.BigIntegerField()
    days = models.PositiveSmallIntegerField(default=30)

    class Meta:
        ordering = ("job_id", "selector")
        constraints = (
            models.UniqueConstraint(
                fields=("selector",), condition=models.Q(job=None), name="one_objective_per_selector"
            ),
        )

    def __str__(self) -> str:
        return f"objective of {self.job or self.selector or 'all jobs'}"


class ObjectiveBudget(models.Model):
    """The newest measurement of a job with an objective, and the numbers of that objective.

    `missed` of `counted` checkpoints failed or took `limit_ms` or longer. `used_percent` is their share of the number
    that the objective allows; None: the job has no checkpoints.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="budget")
    percent = models.FloatField()
    limit_ms = models.BigIntegerField()
    days = models.PositiveSmallIntegerField()
    counted = models.BigIntegerField()
    missed = models.BigIntegerField()
    used_percent = models.FloatField(null=True)
    measured_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.job}: {self.missed} of {self.counted} missed"

    @property
    def left_percent(self) -> float | None:
        """Return what is left of the budget. It is negative if more checkpoints missed than are allowed."""
        return None if self.used_percent is None else 100 - self.used_percent


class ObjectiveDay(models.Model):
    """The checkpoints of a job that were triggered on a UTC day, and how many of them missed the limit."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="objective_days")
    day = models.DateField()
    limit_ms = models.BigIntegerField()
    counted = models.BigIntegerField()
    missed = models.BigIntegerField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("job", "day"), name="one_objective_day_per_job"),)
        indexes = (models.Index(fields=("day",), name="objective_days_by_day"),)

    def __str__(self) -> str:
        return f"{self.job}: {self.missed} of {self.counted} missed on {self.day}"
