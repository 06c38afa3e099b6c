"""The entry points of the diagnosis: for a checkpoint's page, a job's page, and an incident and its messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from monitoring.diagnosis.fact_queries import facts_of_checkpoint, facts_of_death, facts_of_job
from monitoring.diagnosis.finding import Finding
from monitoring.diagnosis.signs import advices, causes
from monitoring.history import rows
from monitoring.history.expectations import Expectation, Forecast
from monitoring.models import Checkpoint, Incident, Job, OperatorCheckpoint

NEWEST = 2  # checkpoints of the current run: the pending one and the one before it
# The kinds of incidents, by the object that they concern.
CHECKPOINT_INCIDENTS = frozenset(
    {"failed_in_window", "failed_in_total", "consecutive_failures", "end_to_end_duration", "alignment", "start_delay"}
)
FAILURE_INCIDENTS = frozenset({"job_failed", "restart_loop", "not_restarted"})
JOB_INCIDENTS = FAILURE_INCIDENTS | {"no_completed_checkpoint", "data_loss_risk"}


@dataclass(frozen=True)
class Diagnosis:
    """The findings for a job. `causes` concern `checkpoint`; if it is None, the job's failure or missing checkpoints.

    `usual` has the expected values for this hour. `usual` and `forecast` come from the roll-ups.
    """

    causes: list[Finding] = field(default_factory=list)
    advices: list[Finding] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    usual: Mapping[str, Expectation] = field(default_factory=dict)
    forecast: Forecast | None = None

    @property
    def by_setting(self) -> dict[str, Finding]:
        """The advices by the engine's name of their setting."""
        return {each.at: each for each in self.advices if each.at}


def of_checkpoint(checkpoint: Checkpoint, operators: Iterable[OperatorCheckpoint], now: datetime) -> list[Finding]:
    return causes(facts_of_checkpoint(checkpoint, operators, now))


def of_job(job: Job, now: datetime) -> Diagnosis:
    """Return the job's current findings: causes for the newest problem since the last good checkpoint, and advices."""
    facts = facts_of_job(job, now)
    found = advices(facts)
    if facts.silent_since is None and facts.runs:
        for checkpoint in _newest(job):
            why = causes(facts_of_checkpoint(checkpoint, checkpoint.operators.all(), now))
            if why:
                return Diagnosis(why, found, checkpoint, facts.usual, facts.forecast)
            if checkpoint.status == "COMPLETED":
                break
    return Diagnosis(causes(facts), found, None, facts.usual, facts.forecast)


def advice_for(job: Job, now: datetime) -> Diagnosis:
    """Return only the advices about the job's settings."""
    return Diagnosis(advices=advices(facts_of_job(job, now)))


def of_incident(incident: Incident, now: datetime) -> list[Finding]:
    """Return likely causes of an incident, from the rows that opened it, or none if it has no such rows.

    Raises Unreadable: The archive has the row, but cannot be read.
    """
    if incident.job_id is None:
        return []
    if incident.kind in CHECKPOINT_INCIDENTS:
        checkpoint = _evidence_checkpoint(incident)
        return of_checkpoint(checkpoint, rows.operators_of(checkpoint), now) if checkpoint else []
    if incident.kind in JOB_INCIDENTS and incident.resolved_at is None:
        return _of_the_job(incident, now)
    return []


def _of_the_job(incident: Incident, now: datetime) -> list[Finding]:
    job = Job.objects.select_related("current_run", "cluster", "configuration").filter(incidents=incident).first()
    if job is None:
        return []
    if incident.kind in FAILURE_INCIDENTS:
        return causes(facts_of_death(job, now))
    return of_job(job, now).causes


def _evidence_checkpoint(incident: Incident) -> Checkpoint | None:
    """Return the newest checkpoint that the incident's events name as their evidence. Raises Unreadable."""
    evidence = incident.events.exclude(kind="resolved").order_by("-at", "-id").values_list("evidence", flat=True)
    keys = (each.get("last_row") for each in evidence[:20] if isinstance(each, dict))
    key = next((each for each in keys if isinstance(each, int)), None)
    found = rows.checkpoint(key) if key is not None else None
    return found if found is not None and found.run.job_id == incident.job_id else None


def _newest(job: Job) -> list[Checkpoint]:
    found = Checkpoint.objects.filter(run=job.current_run_id, is_savepoint=False)
    found = found.select_related("run__job__cluster", "run__job__configuration").order_by("-triggered_at")
    return list(found[:NEWEST])
