"""Alert rules as people set them, their states for each subject, outages, and baselines."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.clusters import Cluster
from monitoring.models.jobs import Job


class Severity(models.TextChoices):
    WARNING = "warning", _("Warning")
    CRITICAL = "critical", _("Critical")


class RuleScope(models.TextChoices):
    """From narrow to wide. For each kind, only the rules with the narrowest scope that matches a job apply to it."""

    JOB = "job", _("one job")
    SELECTOR = "selector", _("jobs by label")
    EVERYTHING = "everything", _("everything")


class AlertRule(models.Model):
    """The problem that a rule finds (`kind`, see monitoring.alerts.kinds), its jobs, its interval, and its channels.

    The kind defines meaning, unit, default and range of `threshold`, `window_s` and `parameters`. None: the kind does
    not have the number, or derives it from the job. `evaluated_until` is the time up to which the rule was evaluated,
    per cluster ID ("" for subjects without a cluster). The time of a cluster that does not answer stays, so that events
    of the outage still count afterwards.
    """

    name = models.CharField(max_length=100, blank=True, default="")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, null=True, blank=True, related_name="rules")
    selector = models.CharField(max_length=500, blank=True, default="")
    kind = models.CharField(max_length=30, default="failed_in_window")
    window_s = models.PositiveIntegerField(null=True, blank=True)
    threshold = models.BigIntegerField(null=True, blank=True)
    parameters = models.JSONField(default=dict, blank=True)
    check_every_s = models.PositiveIntegerField(
        default=300, validators=[MinValueValidator(5), MaxValueValidator(86_400)]
    )
    # The problem must last this long before an incident opens, and be gone this long before it closes.
    open_hold_s = models.PositiveIntegerField(default=0)
    close_hold_s = models.PositiveIntegerField(default=0)
    # The `flap_opens`-th opening within `flap_window_s` opens a flapping incident, which stays open until that long has
    # passed without a problem. 0: never.
    flap_opens = models.PositiveSmallIntegerField(default=4)
    flap_window_s = models.PositiveIntegerField(default=3600)
    severity = models.CharField(max_length=10, choices=Severity.choices, default=Severity.WARNING)
    enabled = models.BooleanField(default=True)
    runbook = models.CharField(max_length=1000, blank=True, default="")  # what to do: a URL or a text
    channels = models.ManyToManyField("monitoring.Channel", related_name="rules", blank=True)
    next_check_at = models.DateTimeField(null=True, blank=True, db_index=True)
    last_checked_at = models.DateTimeField(null=True, blank=True)
    evaluated_until = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ("kind", "name", "job_id", "severity")
        constraints = (
            models.UniqueConstraint(fields=("job", "kind", "severity"), name="one_rule_per_job_kind_and_severity"),
            models.UniqueConstraint(
                fields=("name",), condition=models.Q(job=None), name="wide_rules_have_names_of_their_own"
            ),
        )

    def __str__(self) -> str:
        return self.name or f"{self.job}: {self.kind}"

    @property
    def scope(self) -> RuleScope:
        if self.job_id is not None:
            return RuleScope.JOB
        return RuleScope.SELECTOR if self.selector else RuleScope.EVERYTHING


class Runbook(models.Model):
    """What to do at incidents of the jobs that `selector` chooses (monitoring.alerts.selector): a URL or a text."""

    selector = models.CharField(max_length=500, unique=True)
    text = models.CharField(max_length=1000)

    class Meta:
        ordering = ("selector",)

    def __str__(self) -> str:
        return self.selector


class RulePhase(models.TextChoices):
    QUIET = "quiet", _("Quiet")
    PENDING = "pending", _("Waiting out the hold")  # the problem exists, but not long enough
    OPEN = "open", _("Open")
    CLOSING = "closing", _("Closing")  # the problem is gone, but not long enough
    DISMISSED = "dismissed", _("Dealt with")  # a person resolved it; quiet until the problem has ended once


class RuleState(models.Model):
    """A rule's state for one job or cluster, or without both for Waymark itself. Without a row, the rule is quiet.

    `since` is the start of the phase; `opens` are the openings within the flap window, oldest first. Events up to
    `counts_since` no longer count, because a person resolved their incident.
    """

    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="states")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, null=True, related_name="rule_states")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="rule_states")
    phase = models.CharField(max_length=10, choices=RulePhase.choices, default=RulePhase.QUIET)
    since = models.DateTimeField()
    opened_at = models.DateTimeField(null=True)
    flapping = models.BooleanField(default=False)
    opens = ArrayField(models.DateTimeField(), default=list)
    counts_since = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("rule", "job", "cluster"), nulls_distinct=False, name="one_state_per_rule_and_subject"
            ),
        )

    def __str__(self) -> str:
        return f"{self.rule}: {self.job or self.cluster or 'Waymark'} is {self.phase} since {self.since}"


class OutageKind(models.TextChoices):
    NO_ANSWER = "no_answer", _("the cluster did not answer")
    ANOTHER_CLUSTER = "stranger", _("another cluster answered at its address")
    NOT_POLLED = "not_asked", _("Waymark did not poll the cluster")


class Outage(models.Model):
    """A time without information about a cluster. Rules must not conclude anything from missing rows in this time."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="outages")
    kind = models.CharField(max_length=10, choices=OutageKind.choices)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    why = models.TextField(blank=True, default="")

    class Meta:
        ordering = ("-began_at",)
        indexes = (models.Index(fields=("cluster", "-began_at")),)
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "kind"), condition=models.Q(ended_at=None), name="one_open_outage_per_cluster"
            ),
        )

    def __str__(self) -> str:
        return f"{self.cluster}: {self.get_kind_display()} from {self.began_at}"


class FigureBaseline(models.Model):
    """The p95 of a job's `figure`, a column of its checkpoints, over the `days` whole UTC days before `day`.

    None: no checkpoint of these days has the figure.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="figure_baselines")
    figure = models.CharField(max_length=30, default="state_size")
    day = models.DateField()
    days = models.PositiveSmallIntegerField()
    p95 = models.BigIntegerField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("day", "days", "figure", "job"), name="one_baseline_per_figure_job_day_and_length"
            ),
        )

    def __str__(self) -> str:
        return f"{self.job}: {self.figure} {self.p95} before {self.day}"


class HourlyBaseline(models.Model):
    """The p95s of a job's `figure` for each hour (UTC) of `day`; None: too few weeks have the figure.

    Each is over the same hour and weekday of the `weeks` weeks before.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="hourly_baselines")
    figure = models.CharField(max_length=30)
    day = models.DateField()
    weeks = models.PositiveSmallIntegerField()
    p95s = ArrayField(models.BigIntegerField(null=True), size=24)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("day", "weeks", "figure", "job"), name="one_hourly_baseline_per_figure_job_day_and_weeks"
            ),
        )

    def __str__(self) -> str:
        return f"{self.job}: {self.figure} by hour on {self.day}"
