"""Restart attempts: the row, not the Celery task, is the guard that a job is started once."""

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
    # Of a job that has ended: another run, from where it ended.
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
    """Unique per (job, epoch). `engine_job_id` is chosen before the launch, so that after a crash the run is looked up,
    never launched twice."""

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
    # What the job is started with, where that is not its own launch record: another program, arguments, parallelism.
    launch = SealedLaunchField(null=True)
    # If what it is changed to does not start, it is started again as it was, from the same state.
    goes_back = models.BooleanField(default=False)
    # The attempt after whose failure this one brings the job back as it was.
    back_from = models.OneToOneField("self", on_delete=models.SET_NULL, null=True, related_name="way_back")
    # The state to restore is the savepoint that the job is stopped with.
    from_stop = models.BooleanField(default=False)
    # There is no state to restore, and the job allows to be started without one.
    start_empty = models.BooleanField(default=False)
    # Checkpoint locations that Spark wrote, by query: the state to restore is the savepoint that is made of them.
    imports = models.JSONField(default=dict, blank=True)
    restore_path = models.TextField(blank=True, default="")
    restore_is_savepoint = models.BooleanField(null=True)
    restore_state_at = models.DateTimeField(null=True)  # when that state was taken: its age is what will be replayed
    savepoint = models.ForeignKey(Savepoint, on_delete=models.SET_NULL, null=True, related_name="+")
    rejected = models.JSONField(default=list)  # [{"path", "why"}]: candidates that could not be restored
    # Where it was looked for candidates that no poll saw and the storage did not answer: [{"place", "waited_s"}].
    silent = models.JSONField(default=list)
    # A live job leaves a savepoint (stop_savepoint) when it is stopped: stages/stop_job.py; False: just cancelled.
    stop_first = models.BooleanField(default=False)
    stop_savepoint = models.ForeignKey(Savepoint, on_delete=models.SET_NULL, null=True, related_name="+")
    # Written before the launch leaves: from then on the job may run, so it is looked up before anything else.
    launch_sent_at = models.DateTimeField(null=True)
    launches = models.PositiveSmallIntegerField(default=0)  # how often it was sent, always under the one id
    launched_at = models.DateTimeField(null=True)  # the engine was seen to know the id
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
    """A start of an automatic restart that the engine refused. The job never ran under `engine_job_id`, so the engine's
    entry for it is not a run of the job. `path`: of the state that is to blame; "" where the engine does not say so."""

    attempt = models.ForeignKey(RestartAttempt, on_delete=models.CASCADE, related_name="refused_starts")
    engine_job_id = models.CharField(max_length=32, db_index=True)
    path = models.TextField()
    refused_at = models.DateTimeField()
    # The directory that the engine made for its checkpoints, if it is still there; "": it is not; None: not known yet.
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
    """One step of an attempt as the page shows it."""

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
