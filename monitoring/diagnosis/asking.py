"""Who asks: a checkpoint's page, a job's page, an incident and the messages about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from monitoring.diagnosis.finding import Finding
from monitoring.diagnosis.scene_queries import scene_of_checkpoint, scene_of_death, scene_of_job
from monitoring.diagnosis.signs import advices, causes
from monitoring.history.expectations import Expectation, Forecast
from monitoring.models import Checkpoint, Incident, Job, OperatorCheckpoint

NEWEST = 2  # of the current run: the one that is pending, and the one before it
# Kinds of incidents by what they are about.
OF_ONE_CHECKPOINT = frozenset(
    {"failed_in_window", "failed_in_total", "consecutive_failures", "end_to_end_duration", "alignment", "start_delay"}
)
OF_A_DEATH = frozenset({"job_failed", "restart_loop", "not_restarted"})
OF_THE_JOB = OF_A_DEATH | {"no_completed_checkpoint", "data_loss_risk"}


@dataclass(frozen=True)
class Diagnosis:
    """`checkpoint`: the one that `causes` are about; None: they are about there being none, or the job's death.
    `usual`: what is expected at this hour; `forecast`: both as far as roll-ups tell."""

    causes: list[Finding] = field(default_factory=list)
    advices: list[Finding] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    usual: Mapping[str, Expectation] = field(default_factory=dict)
    forecast: Forecast | None = None

    @property
    def by_setting(self) -> dict[str, Finding]:
        """Advices by the engine's name of the setting that they are about."""
        return {each.at: each for each in self.advices if each.at}


def of_checkpoint(checkpoint: Checkpoint, operators: Iterable[OperatorCheckpoint], now: datetime) -> list[Finding]:
    return causes(scene_of_checkpoint(checkpoint, operators, now))


def of_job(job: Job, now: datetime) -> Diagnosis:
    """What holds now: of the newest checkpoint that went wrong and none has completed since, and of the settings."""
    scene = scene_of_job(job, now)
    found = advices(scene)
    if scene.silent_since is None and scene.runs:
        for checkpoint in _newest(job):
            why = causes(scene_of_checkpoint(checkpoint, checkpoint.operators.all(), now))
            if why:
                return Diagnosis(why, found, checkpoint, scene.usual, scene.forecast)
            if checkpoint.status == "COMPLETED":
                break
    return Diagnosis(causes(scene), found, None, scene.usual, scene.forecast)


def advice_for(job: Job, now: datetime) -> Diagnosis:
    """The settings alone."""
    return Diagnosis(advices=advices(scene_of_job(job, now)))


def of_incident(incident: Incident, now: datetime) -> list[Finding]:
    """Likely causes of what the incident found, from the rows it was decided on; none for what has no such rows."""
    if incident.job_id is None:
        return []
    if incident.kind in OF_ONE_CHECKPOINT:
        checkpoint = _decided_on(incident)
        return of_checkpoint(checkpoint, checkpoint.operators.all(), now) if checkpoint else []
    if incident.kind in OF_THE_JOB and incident.resolved_at is None:
        return _of_the_job(incident, now)
    return []


def _of_the_job(incident: Incident, now: datetime) -> list[Finding]:
    job = Job.objects.select_related("current_run", "cluster", "configuration").filter(incidents=incident).first()
    if job is None:
        return []
    if incident.kind in OF_A_DEATH:
        return causes(scene_of_death(job, now))
    return of_job(job, now).causes


def _decided_on(incident: Incident) -> Checkpoint | None:
    """The newest checkpoint that the incident's steps name as their row."""
    evidence = incident.events.exclude(kind="resolved").order_by("-at", "-id").values_list("evidence", flat=True)
    rows = (each.get("last_row") for each in evidence[:20] if isinstance(each, dict))
    row = next((each for each in rows if isinstance(each, int)), None)
    found = Checkpoint.objects.select_related("run__job__cluster", "run__job__configuration")
    return found.filter(pk=row, run__job=incident.job_id).first() if row is not None else None


def _newest(job: Job) -> list[Checkpoint]:
    found = Checkpoint.objects.filter(run=job.current_run_id, is_savepoint=False)
    found = found.select_related("run__job__cluster", "run__job__configuration").order_by("-triggered_at")
    return list(found[:NEWEST])
