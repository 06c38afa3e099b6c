"""Restart attempts. The row, not the Celery task, ensures that a job is started only once."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.jobs import Job, Run
from monitoring.models.savepoints import Savepoint
from monitoring.models.sealed_json import SealedLaunchField
from monitoring.reasons.columns import ReasonField


class RestartTrigger(models.TextChoices):
    AUTOMATIC = "automatic", _("automatic")
    MANUAL = "manual", _("manual")
    # A person runs an ended job again, from the snapshot at its end.
    AGAIN = "again", _("run again")
    SCHEDULED = "scheduled", _("on schedule")


class AttemptState(models.TextChoices):
    DECIDED = "decided", _("Decided")
    UPLOADING = "uploading", _("Uploading the program")
    IMPORTING = "importing", _("Copying the checkpoint location")
    VALIDATING = "validating", _("Checking the snapshot")
    STOPPING = "stopping", _("Stopping the job")
    LAUNCHING = "launching", _("Starting the job")
    WAITING = "waiting", _("Waiting for the job to run")
    SUCCEEDED = "succeeded", _("Running again")
    FAILED = "failed", _("Failed")
    CANCELED = "canceled", _("Canceled")

    @property
    def open(self) -> bool:
        return self not in (AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELED)


ENDED = tuple(state for state in AttemptState if not state.open)


class RestartAttempt(models.Model):
    """A restart attempt, unique per (job, epoch).

    `engine_job_id` is chosen before the launch, so that after a crash the run is looked up and not launched twice.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="restart_attempts")
    epoch = models.PositiveIntegerField()
    trigger = models.CharField(max_length=10, choices=RestartTrigger.choices)
    state = models.CharField(max_length=12, choices=AttemptState.choices, default=AttemptState.DECIDED)
    reason = models.TextField()
    reason_value = ReasonField(null=True)
    requested_by = models.CharField(max_length=150, blank=True, default="")
    old_run = models.ForeignKey(Run, on_delete=models.SET_NULL, null=True, related_name="+")
    new_run = models.ForeignKey(Run, on_delete=models.SET_NULL, null=True, related_name="+")
    engine_job_id = models.CharField(max_length=32)
    # The launch record of this attempt if it differs from the job's: another program, arguments, parallelism.
    launch = SealedLaunchField(null=True)
    # If the changed job does not start, another attempt starts it as it was before, from the same snapshot.
    goes_back = models.BooleanField(default=False)
    # The failed attempt that this attempt undoes.
    back_from = models.OneToOneField("self", on_delete=models.SET_NULL, null=True, related_name="way_back")
    # The snapshot to restore is the savepoint with which the job is stopped.
    from_stop = models.BooleanField(default=False)
    # The job is started without a snapshot.
    start_empty = models.BooleanField(default=False)
    # Spark's checkpoint locations by query. The snapshot to restore is the savepoint that is made from them.
    imports = models.JSONField(default=dict, blank=True)
    # The resource through which the Flink operator restarts the job (kubernetes.job_resources.JobResource). None:
    # Waymark starts it.
    resource = models.JSONField(null=True)
    restore_path = models.TextField(blank=True, default="")
    restore_is_savepoint = models.BooleanField(null=True)
    restore_state_at = models.DateTimeField(null=True)  # the time of the snapshot; later input is processed again
    savepoint = models.ForeignKey(Savepoint, on_delete=models.SET_NULL, null=True, related_name="+")
    rejected = models.JSONField(default=list)  # [{"path", "why"}]: snapshots that could not be restored
    # Storage that did not answer a search for checkpoints that no poll saw: [{"place", "waited_s"}].
    silent = models.JSONField(default=list)
    # A live job is stopped with a savepoint (stop_savepoint), see stages/stop_job.py; False: it is canceled without
    # one.
    stop_first = models.BooleanField(default=False)
    stop_savepoint = models.ForeignKey(Savepoint, on_delete=models.SET_NULL, null=True, related_name="+")
    # Stored before the launch is sent. From then on the job may run, so Waymark always looks it up at the engine first.
    launch_sent_at = models.DateTimeField(null=True)
    launches = models.PositiveSmallIntegerField(default=0)  # how often the launch was sent, always with the same ID
    launched_at = models.DateTimeField(null=True)  # when the engine first knew the ID
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField()
    next_step_at = models.DateTimeField(null=True, db_index=True)
    claimed_until = models.DateTimeField(null=True)
    error = models.TextField(blank=True, default="")
    error_value = ReasonField(null=True)

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(fields=("job", "epoch"), name="one_attempt_per_job_and_epoch"),
            models.UniqueConstraint(
                fields=("job",),
                condition=~models.Q(state__in=("succeeded", "failed", "canceled")),
                name="one_open_attempt_per_job",
            ),
        )

    def __str__(self) -> str:
        return f"{self.job} restart {self.epoch} ({self.state})"


class RefusedStart(models.Model):
    """A start of an automatic restart that the engine refused.

    The job never ran under `engine_job_id`, so the engine's entry for this ID is not a run of the job. `path`: the
    snapshot that caused the refusal, "" if it was not the cause.
    """

    attempt = models.ForeignKey(RestartAttempt, on_delete=models.CASCADE, related_name="refused_starts")
    engine_job_id = models.CharField(max_length=32, db_index=True)
    path = models.TextField()
    refused_at = models.DateTimeField()
    # The checkpoint directory that the engine made for the start, if it still exists; "": it does not; None: not known
    # yet.
    left_directory = models.TextField(null=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.attempt}: {self.engine_job_id} from {self.path}"


class StepState(models.TextChoices):
    RUNNING = "running", _("In progress")
    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")
    SKIPPED = "skipped", _("Not needed")


class RestartStep(models.Model):
    """One step of an attempt, as the page shows it."""

    attempt = models.ForeignKey(RestartAttempt, on_delete=models.CASCADE, related_name="steps")
    name = models.CharField(max_length=100)
    state = models.CharField(max_length=10, choices=StepState.choices)
    text = models.TextField(blank=True, default="")
    text_value = ReasonField(null=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("started_at", "id")

    def __str__(self) -> str:
        return f"{self.attempt}: {self.name}"
