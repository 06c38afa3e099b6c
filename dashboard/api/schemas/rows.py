"""The schemas of rows: every field that a page shows, with its name in the database."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import ModelSchema, Schema
from pydantic import Field

from dashboard import launch_wait
from dashboard.api.schemas.reasons import ReasonJson
from monitoring.models import (
    AuditEntry,
    AutomationPause,
    Checkpoint,
    CheckpointGap,
    Cluster,
    Delivery,
    DeliveryAttempt,
    Incident,
    IncidentEvent,
    LaunchVersion,
    MaintenanceWindow,
    OperatorCheckpoint,
    RestartAttempt,
    RestartDecision,
    RestartStep,
    Run,
    RunException,
    RunStateChange,
    SavedView,
    Savepoint,
    StateRead,
)


class ClusterOut(ModelSchema):
    state: str = Field(description="The status of the cluster, as on its page.")
    jobs: int = Field(description="Number of jobs. `running`: number of running jobs.")
    running: int
    reachable: bool
    last_error_value: ReasonJson

    class Meta:
        model = Cluster
        fields = (
            *("id", "name", "discovery", "rest_url", "history_server", "savepoint_target"),
            *("zookeeper_hosts", "zookeeper_root", "zookeeper_cluster_id"),
            *("zookeeper_authentication", "zookeeper_username", "zookeeper_tls"),
            *("authentication", "username", "engine", "version", "labels", "enabled", "disabled_reason"),
            *("archived_at", "poll_interval_s", "request_limit_s", "requests_at_once", "savepoints_at_once"),
            *("savepoint_jitter_s", "last_answer_at"),
            *("unreachable_since", "last_error", "created_at"),
        )


class RunOut(ModelSchema):
    job_id: int
    vertices: list[dict[str, Any]] = Field(description="Id, name and parallelism of each operator.")
    outcome: dict[str, Any] = Field(
        description="The final state of a run that ended by itself: saved, savepoint (the final one), state (where the "
        "next run continues), rows and batches. Empty for other runs."
    )
    launch_wait: dict[str, Any] = Field(
        description="Why a run in CREATED waits for its driver: for (memory, drivers, starts, turn, machine, recovery "
        "or environment), since, sentence, and details of the reason. In the queue of drivers: asked, free and limit "
        "(bytes or numbers), position and length. For environment: kind, step, output (the last line of pip) and "
        "failure (why an earlier preparation failed). Empty for other runs."
    )

    position: dict[str, Any] = Field(
        description="What a watched streaming query had read: batch, watermark (null: it has none), and sources (the "
        "offsets of each source as JSON text). Empty for other runs, and before the first reading."
    )

    @staticmethod
    def resolve_launch_wait(run: Run) -> dict[str, Any]:
        return run.launch_wait and {**run.launch_wait, "sentence": launch_wait.sentence(run.launch_wait)}

    class Meta:
        model = Run
        fields = (
            *("id", "number", "engine_job_id", "state", "observed_at", "started_at", "ended_at", "vertices"),
            *("checkpoint_config", "counts", "summary", "restored_path", "restored_checkpoint_id"),
            *("restored_is_savepoint", "restored_at", "exception"),
        )


class StateChangeOut(ModelSchema):
    why_value: ReasonJson

    class Meta:
        model = RunStateChange
        fields = ("at", "source", "target", "why")


class RunDetailOut(RunOut):
    state_changes: list[StateChangeOut] = []


class GapOut(ModelSchema):
    run_id: int

    class Meta:
        model = CheckpointGap
        fields = ("first_id", "last_id", "noticed_at")


class ExceptionOut(ModelSchema):
    run_id: int

    class Meta:
        model = RunException
        fields = ("id", "at", "name", "message", "root_cause", "task", "host", "stacktrace")


class CheckpointOut(ModelSchema):
    run_id: int
    archived: bool = Field(False, description="Whether it was read from the archive.")

    class Meta:
        model = Checkpoint
        fields = (
            *("id", "checkpoint_id", "status", "is_savepoint", "checkpoint_type", "savepoint_format", "triggered_at"),
            *("latest_ack_at", "failed_at", "failure_message", "end_to_end_duration", "checkpointed_size"),
            *("state_size", "processed_data", "persisted_data", "num_subtasks", "num_acknowledged_subtasks"),
            *("external_path", "discarded", "alignment_max", "start_delay_max", "sync_max", "async_max"),
        )


class OperatorOut(ModelSchema):
    checkpoint_id: int = Field(description="The id in /checkpoints/{id}, not the id in the engine.")

    class Meta:
        model = OperatorCheckpoint
        fields = (
            *("id", "vertex_id", "name", "position", "num_subtasks", "num_acknowledged_subtasks", "latest_ack_at"),
            *("end_to_end_duration", "checkpointed_size", "state_size", "processed_data", "persisted_data"),
        )


class SubtaskOut(Schema):
    index: int
    acknowledged_at: datetime | None
    unaligned: bool | None
    aborted: bool
    figures: dict[str, int | None] = Field(description="Values in milliseconds or bytes, by name.")


class OperatorDetailOut(OperatorOut):
    subtasks: list[SubtaskOut]


class CheckpointDetailOut(CheckpointOut):
    operators: list[OperatorOut]
    progress: dict[str, Any] | None = Field(
        None,
        description="Spark's figures of the batch, as the agent reported them: durationMs, numInputRows, "
        "stateOperators and others. null: not such a batch, or not among the newest of its run.",
    )


class SavepointOut(ModelSchema):
    job_id: int
    run_id: int
    checkpoint_id: int | None = Field(None, description="The id of its checkpoint, as in /checkpoints/{id}.")
    failure_value: ReasonJson
    problem_value: ReasonJson
    disposal_reason_value: ReasonJson

    class Meta:
        model = Savepoint
        fields = (
            *("id", "origin", "state", "stops_job", "path", "size", "requested_by", "requested_at", "completed_at"),
            *("failure", "pinned", "note", "checked_at", "problem", "gone_at", "disposal_reason", "disposed_at"),
        )


class StepOut(ModelSchema):
    text_value: ReasonJson

    class Meta:
        model = RestartStep
        fields = ("name", "state", "text", "started_at", "ended_at")


class RestartOut(ModelSchema):
    job_id: int
    imports: dict[str, str] = Field(description="Checkpoint locations that are imported, by query.")
    rejected: list[dict[str, Any]] = Field(description="Snapshots that could not be restored: path and reason.")
    silent: list[dict[str, Any]] = Field(
        description="Locations in which Waymark could not search for checkpoints that no poll saw: the location, and "
        "the seconds that Waymark waited for the storage."
    )
    old_run_id: int | None
    new_run_id: int | None
    savepoint_id: int | None
    reason_value: ReasonJson
    error_value: ReasonJson

    class Meta:
        model = RestartAttempt
        fields = (
            *("id", "epoch", "trigger", "state", "reason", "requested_by", "engine_job_id", "from_stop", "start_empty"),
            *("restore_path", "restore_is_savepoint", "restore_state_at", "rejected", "silent", "stop_first"),
            *("created_at", "ended_at", "error"),
        )


class RestartDetailOut(RestartOut):
    steps: list[StepOut]


class DecisionOut(ModelSchema):
    job_id: int
    reason_value: ReasonJson

    class Meta:
        model = RestartDecision
        fields = ("id", "at", "verdict", "reason", "facts")


class IncidentOut(ModelSchema):
    rule_id: int | None
    job_id: int | None
    cluster_id: int | None
    inhibited_by_id: int | None = Field(description="The incident that hides this incident.")
    subject: str = Field(description="The name of the job or cluster.")
    sentence_value: ReasonJson = Field(description="The sentence as data. null: an incident of an older version.")

    class Meta:
        model = Incident
        fields = (
            *("id", "kind", "state", "severity", "sentence", "opened_at", "acknowledged_at", "acknowledged_by"),
            *("assigned_to", "snoozed_until", "resolved_at", "resolved_by"),
        )


class IncidentEventOut(ModelSchema):
    text_value: ReasonJson = Field(description="The text as data. null: an event of an older version.")

    class Meta:
        model = IncidentEvent
        fields = ("at", "kind", "text", "evidence", "times", "first_at")


class IncidentDetailOut(IncidentOut):
    events: list[IncidentEventOut]


class DeliveryOut(ModelSchema):
    channel_id: int
    channel_name: str = Field(alias="channel.name", description="Also set if the channel was deleted.")

    class Meta:
        model = Delivery
        fields = ("id", "key", "state", "subject", "is_digest", "is_test", "created_at", "attempts", "sent_at")


class TryOut(ModelSchema):
    answer_value: ReasonJson = Field(description="null: the text is what the receiver said.")

    class Meta:
        model = DeliveryAttempt
        fields = ("at", "outcome", "answer")


class DeliveryDetailOut(DeliveryOut):
    tries: list[TryOut] = Field(description="The answers are empty for an account with grants only.")


class WindowOut(ModelSchema):
    job_id: int | None
    cluster_id: int | None

    class Meta:
        model = MaintenanceWindow
        fields = ("id", "reason", "selector", "starts_at", "ends_at", "created_by", "ended_by")


class PauseOut(ModelSchema):
    cluster_id: int | None = Field(description="null: all clusters.")

    class Meta:
        model = AutomationPause
        fields = ("id", "reason", "author", "started_at", "until", "ended_at", "ended_by")


class LaunchVersionOut(ModelSchema):
    spec: dict[str, Any] = Field(description="Values of secrets are hidden.")

    class Meta:
        model = LaunchVersion
        fields = ("number", "origin", "created_at", "created_by")


class AuditOut(ModelSchema):
    reason_value: ReasonJson = Field(description="null: a person wrote the reason.")

    class Meta:
        model = AuditEntry
        fields = ("id", "at", "actor", "action", "target", "reason", "details")


class SavedViewOut(ModelSchema):
    class Meta:
        model = SavedView
        fields = ("id", "name", "query", "created_at")


class StateReadOut(ModelSchema):
    """A read of a snapshot's state. `answer` has the format of `manage.py state … --json`.

    If the account or token may not act on the job, `key_text` and `contains` are empty, and a list omits the elements
    of operator state.
    """

    job_id: int
    answer: Any = Field(
        None, description="null until the read is done. Keys and values are null if you may not act on the job."
    )
    label_value: ReasonJson
    other_label_value: ReasonJson
    problem_value: ReasonJson

    class Meta:
        model = StateRead
        fields = (
            *("id", "kind", "state", "snapshot", "label", "other_snapshot", "other_label", "query", "operator", "view"),
            *("key_field", "key_text", "contains", "partition", "most", "asked_by", "asked_at", "started_at"),
            *("ended_at", "problem"),
        )
