"""The schemas of a job: its facts, its health and its automation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import ModelSchema, Schema
from pydantic import Field

from dashboard.api.schemas.reasons import ReasonJson
from dashboard.health import Health, JobFacts
from dashboard.queries.fleet import JobRow
from monitoring.models import Job, ObjectiveBudget


class HealthOut(Schema):
    level: str = Field(description="failing, overdue, degraded, unknown, healthy or ended.")
    freshness: str = Field(description="The age of the last completed checkpoint relative to the checkpoint interval.")
    state: str = Field(description="The status of the current run, or unknown.")
    sentence: str = Field(description="The problem. Empty if there is none.")


class BudgetOut(Schema):
    percent: float = Field(description="The objective: this share of the checkpoints …")
    limit_ms: int = Field(description="… completes in less than this time …")
    days: int = Field(description="… over today and the UTC days before it.")
    counted: int = Field(description="The number of checkpoints.")
    missed: int = Field(description="How many of them failed or took the limit or longer.")
    left_percent: float | None = Field(description="What is left of the budget. Negative: the objective is missed.")
    measured_at: datetime


class JobOut(ModelSchema):
    cluster_id: int
    cluster: str = Field(description="The name of the cluster.")
    run_id: int | None = Field(description="The current run.")
    engine_job_id: str | None = Field(description="The ID of the current run in the engine.")
    health: HealthOut
    last_completed_at: datetime | None
    last_completed_id: int | None = Field(description="The id of this checkpoint in the engine.")
    last_duration_ms: int | None
    state_size: int | None
    last_failed_at: datetime | None
    last_failure: str
    unresolved_incidents: int
    restart_id: int | None = Field(description="The restart in progress.")
    budget: BudgetOut | None = Field(None, description="The budget of the objective. null: the job has none yet.")

    class Meta:
        model = Job
        fields = ("id", "name", "labels", "auto_restart", "automation_paused", "managed_elsewhere", "created_at")


class JobDetailOut(JobOut):
    sources: list[str] = Field(
        description="The clusters that see a watched query, the leading one first. Empty for other jobs."
    )


class AutomationOut(ModelSchema):
    savepoint_schedule: str = Field(description="For example every 1 h. Empty: no schedule.")
    run_schedule: str = Field(description="For example at 03:00 every day (UTC). Empty: on request only.")
    automation_note_value: ReasonJson = Field(description="None: a person wrote the note.")
    breaker_reason_value: ReasonJson
    run_problem_value: ReasonJson

    class Meta:
        model = Job
        fields = (
            *("auto_restart", "restore_from", "max_restarts_per_hour", "max_restarts_per_day", "oldest_state_s"),
            *("restart_on_lost", "allow_empty_start", "managed_elsewhere", "automation_paused", "automation_note"),
            "automation_paused_until",
            *("labels", "breaker_opened_at", "breaker_reason", "savepoint_quiet", "savepoint_time_zone"),
            "next_savepoint_at",
            *("savepoints_kept", "savepoints_kept_s", "final_savepoints_kept"),
            *("run_time_zone", "next_run_at", "run_problem"),
        )


class ConfigurationOut(Schema):
    parts: dict[str, dict[str, Any]] = Field(
        description="By part and key, as the engine reports it. Secrets are hidden."
    )
    since: datetime | None


class FleetOut(Schema):
    jobs: int
    levels: dict[str, int] = Field(description="Number of jobs by level.")
    silent_clusters: list[str]
    last_answer_at: datetime | None


def job_out(row: JobRow) -> dict[str, Any]:
    return facts_out(row.facts, row.health, row.figures.budget)


def facts_out(facts: JobFacts, health: Health, budget: ObjectiveBudget | None) -> dict[str, Any]:
    job = facts.job
    own = {name: getattr(job, name) for name in JobOut.Meta.fields}
    return own | {
        "cluster_id": job.cluster_id,
        "cluster": job.cluster.name,
        "run_id": job.current_run_id,
        "engine_job_id": job.current_run.engine_job_id if job.current_run else None,
        "health": {
            "level": health.level.word,
            "freshness": health.freshness.word,
            "state": health.state_word,
            "sentence": health.sentence,
        },
        "last_completed_at": facts.last_completed_at,
        "last_completed_id": facts.last_completed_id,
        "last_duration_ms": facts.last_duration_ms,
        "state_size": facts.state_size,
        "last_failed_at": facts.last_failed_at,
        "last_failure": facts.last_failure,
        "unresolved_incidents": facts.incidents,
        "restart_id": facts.attempt.pk if facts.attempt else None,
        "budget": budget and {name: getattr(budget, name) for name in BudgetOut.model_fields},
    }
