"""Builders of realistic rows as the poller stores them: clusters, jobs, runs, histories, incidents, restarts."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from monitoring.alerts.failure_reason import CheckpointFailureReason
from monitoring.alerts.kinds.base import checkpoints
from monitoring.alerts.kinds.counting import FailedInWindowReason
from monitoring.alerts.kinds.objective_budget import used_percent
from monitoring.models import (
    AlertRule,
    AttemptOutcome,
    AttemptState,
    Channel,
    ChannelKind,
    Checkpoint,
    CheckpointStatus,
    Cluster,
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    Engine,
    Incident,
    IncidentEvent,
    IncidentEventKind,
    IncidentState,
    Job,
    Notification,
    NotificationReason,
    NotificationState,
    Objective,
    ObjectiveBudget,
    OperatorCheckpoint,
    RestartAttempt,
    RestartStep,
    RestartTrigger,
    Run,
    RunState,
    Savepoint,
    SavepointOrigin,
    SavepointState,
    StepState,
)
from monitoring.reasons.columns import columns, stored
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason

LAUNCH = {
    "kind": "waymark",
    "jar_id": "4c2f_flights.py",
    "entry_class": "flights.py:by_route",
    "program_args": ["--input", "/data/flights"],
    "parallelism": 4,
    "configuration": {"execution.checkpointing.interval": "10s", "spark.sql.shuffle.partitions": "4"},
}
EXPIRED = "Checkpoint expired before completing."


def config(interval_ms: int | None = 10_000) -> dict[str, Any]:
    return {
        "mode": "exactly_once",
        "interval": interval_ms,
        "timeout": 60_000,
        "min_pause": 0,
        "max_concurrent": 1,
        "externalization": {"enabled": True, "delete_on_cancellation": False},
        "state_backend": "RocksDBStateStoreProvider",
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": 3,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
    }


VERTICES = (("Source: flights (files)", 1), ("aggregate by aircraft and route", 4), ("Sink: routes (PostgreSQL)", 1))


def make_cluster(now: datetime, name: str = "waymark", *, engine: Engine = Engine.SPARK, **fields: Any) -> Cluster:
    version = "waymark-0.1.0" if engine is Engine.SPARK else "2.3.0"
    known = {"version": version, "last_answer_at": now - timedelta(seconds=2)}
    return Cluster.objects.create(
        name=name, rest_url=f"http://{name}.example:8081", engine=engine, **{**known, **fields}
    )


def make_job(cluster: Cluster, name: str = "flights-by-route", **fields: Any) -> Job:
    defaults = {"auto_restart": True, "savepoint_interval_s": 3600, "launch": LAUNCH}
    return Job.objects.create(cluster=cluster, name=name, **{**defaults, **fields})


def make_run(job: Job, now: datetime, *, age: timedelta = timedelta(minutes=31), **fields: Any) -> Run:
    """Create the job's next run, which becomes its current run."""
    defaults = {
        "number": job.runs.count() + 1,
        "engine_job_id": uuid.uuid4().hex,
        "state": RunState.RUNNING,
        "observed_at": now - timedelta(seconds=2),
        "started_at": now - age,
        "checkpoint_config": config(),
        "vertices": [{"id": f"{i:032x}", "name": n, "parallelism": p} for i, (n, p) in enumerate(VERTICES)],
    }
    run = Run.objects.create(job=job, **{**defaults, **fields})
    job.current_run = run
    job.save(update_fields=["current_run"])
    return run


@dataclass(frozen=True)
class Shape:
    """The checkpoints of a run. `slow` and `failed` are positions, counted from the newest checkpoint."""

    count: int = 60
    every: timedelta = timedelta(seconds=10)
    base_ms: int = 620
    state_bytes: int = 2_410_000_000
    slow: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    savepoints: frozenset[int] = frozenset()
    first_id: int = 1


def make_checkpoints(run: Run, newest_at: datetime, shape: Shape = Shape(), seed: int = 7) -> list[Checkpoint]:
    """Create checkpoints with the maxima of their phases, oldest first. `make_operators` adds the subtasks."""
    dice = random.Random(seed)
    rows = [_checkpoint(run, newest_at, shape, back, dice) for back in reversed(range(shape.count))]
    return Checkpoint.objects.bulk_create(rows)


def _checkpoint(run: Run, newest_at: datetime, shape: Shape, back: int, dice: random.Random) -> Checkpoint:
    at = newest_at - shape.every * back
    slow, failed, savepoint = back in shape.slow, back in shape.failed, back in shape.savepoints
    alignment = dice.randint(1400, 4100) if slow or failed else dice.randint(20, 160)
    delay, sync = dice.randint(10, 120), dice.randint(20, 70)
    asynchronous = round(shape.base_ms * dice.uniform(0.7, 1.3)) * (3 if savepoint else 1)
    duration = 10_000 if failed else delay + alignment + sync + asynchronous + dice.randint(5, 40)
    number = shape.first_id + shape.count - 1 - back
    size = round(shape.state_bytes * (1 - back / (shape.count * 8)))
    done = {
        "status": CheckpointStatus.COMPLETED,
        "latest_ack_at": at + timedelta(milliseconds=duration),
        "checkpointed_size": size if savepoint else round(size * dice.uniform(0.0006, 0.0012)),
        "state_size": size,
        "num_acknowledged_subtasks": 6,
        "external_path": f"file:/data/{'savepoints/savepoint-ae06e0-' if savepoint else 'checkpoints/chk-'}{number}",
    }
    broken = {
        "status": CheckpointStatus.FAILED,
        "failed_at": at + timedelta(milliseconds=duration),
        "failure_message": EXPIRED,
        "num_acknowledged_subtasks": 4,
    }
    return Checkpoint(
        run=run,
        checkpoint_id=number,
        is_savepoint=savepoint,
        checkpoint_type="SAVEPOINT" if savepoint else "CHECKPOINT",
        triggered_at=at,
        end_to_end_duration=duration,
        num_subtasks=6,
        processed_data=0,
        persisted_data=0,
        start_delay_max=delay,
        alignment_max=alignment,
        sync_max=sync,
        async_max=asynchronous,
        final=True,
        **(broken if failed else done),
    )


def make_operators(checkpoints: Sequence[Checkpoint], seed: int = 3) -> None:
    """Create a source, a keyed operator with four subtasks and a sink, whose values match those of the checkpoints."""
    dice = random.Random(seed)
    rows = [row for checkpoint in checkpoints for row in _operators(checkpoint, dice)]
    OperatorCheckpoint.objects.bulk_create(rows)


def _operators(checkpoint: Checkpoint, dice: random.Random) -> list[OperatorCheckpoint]:
    failed = checkpoint.status == CheckpointStatus.FAILED
    return [
        _operator(checkpoint, position, name, parallelism, failed and position == 1, dice)
        for position, (name, parallelism) in enumerate(VERTICES)
    ]


def _operator(
    checkpoint: Checkpoint, position: int, name: str, parallelism: int, late: bool, dice: random.Random
) -> OperatorCheckpoint:
    acknowledged = [not (late and subtask >= 2) for subtask in range(parallelism)]
    alignment_peak = (checkpoint.alignment_max or 0) if position == 1 else 0

    def figures(highest: int) -> list[int | None]:
        values = [round(highest * dice.uniform(0.05, 0.6)) for _ in range(parallelism)]
        values[min(2, parallelism - 1)] = highest
        return [value if ok else None for value, ok in zip(values, acknowledged, strict=True)]

    share = 0 if position != 1 else 1
    size = (checkpoint.state_size or 0) * share or 1_240
    ack = checkpoint.triggered_at + timedelta(milliseconds=(checkpoint.end_to_end_duration or 0) * 0.9)
    return OperatorCheckpoint(
        checkpoint=checkpoint,
        triggered_at=checkpoint.triggered_at,
        vertex_id=f"{position:032x}",
        name=name,
        position=position,
        num_subtasks=parallelism,
        num_acknowledged_subtasks=sum(acknowledged),
        latest_ack_at=ack,
        end_to_end_duration=checkpoint.end_to_end_duration,
        checkpointed_size=(checkpoint.checkpointed_size or 0) * share or 1_240,
        state_size=size,
        processed_data=0,
        persisted_data=0,
        subtask_ack_at=[ack if ok else None for ok in acknowledged],
        subtask_end_to_end=figures(checkpoint.end_to_end_duration or 0),
        subtask_checkpointed_size=figures(((checkpoint.checkpointed_size or 0) * share or 1_240) // parallelism),
        subtask_state_size=figures(size // parallelism),
        subtask_sync=figures(checkpoint.sync_max or 0),
        subtask_async=figures(checkpoint.async_max or 0),
        subtask_alignment=figures(alignment_peak),
        subtask_start_delay=figures(checkpoint.start_delay_max or 0),
        subtask_processed=[0 if ok else None for ok in acknowledged],
        subtask_persisted=[0 if ok else None for ok in acknowledged],
        subtask_unaligned=[False if ok else None for ok in acknowledged],
        subtask_aborted=[False if ok else None for ok in acknowledged],
    )


def make_savepoint(run: Run, at: datetime, **fields: Any) -> Savepoint:
    defaults = {
        "origin": SavepointOrigin.SCHEDULED,
        "state": SavepointState.COMPLETED,
        "path": f"file:/data/savepoints/savepoint-ae06e0-{uuid.uuid4().hex[:12]}",
        "size": 2_405_000_000,
        "requested_at": at,
        "completed_at": at + timedelta(seconds=2.4),
    }
    return Savepoint.objects.create(job=run.job, run=run, **{**defaults, **fields})


def make_rule(job: Job, **fields: Any) -> AlertRule:
    return AlertRule.objects.create(**{"job": job, "threshold": 3, "window_s": 900, **fields})


def make_objective(job: Job, now: datetime, *, counted: int = 10_000, missed: int = 40) -> Objective:
    """Create the objective of a job, "99 % in less than 30 s over 30 days", and its measured budget."""
    numbers = {"percent": 99, "limit_ms": 30_000, "days": 30}
    used = used_percent(counted, missed, 99)
    ObjectiveBudget.objects.create(
        job=job, counted=counted, missed=missed, used_percent=used, measured_at=now, **numbers
    )
    return Objective.objects.create(job=job, **numbers)


def make_channel(name: str = "on-call", kind: ChannelKind = ChannelKind.MAIL) -> Channel:
    to = {"to": ["ops@example.org"]} if kind is ChannelKind.MAIL else {"url": "https://hooks.example.org/waymark"}
    return Channel.objects.create(name=name, kind=kind, settings=to)


def make_incident(rule: AlertRule, at: datetime, **fields: Any) -> Incident:
    """Create an open incident with its first event."""
    found = failed_in_window(rule.job.name, threshold=rule.threshold)
    defaults = {"severity": rule.severity, "opened_at": at, "state": IncidentState.OPEN, **columns("sentence", found)}
    incident = Incident.objects.create(rule=rule, job=rule.job, cluster=rule.job.cluster, **{**defaults, **fields})
    IncidentEvent.objects.create(
        incident=incident,
        at=at,
        kind=IncidentEventKind.OPENED,
        **columns("text", found),
        evidence={"count": 4, "threshold": rule.threshold, "window_s": 900, "checkpoint_ids": [116, 115, 113, 112]},
    )
    return incident


def failed_in_window(job: str, count: int = 4, newest: int = 116, threshold: int | None = 3) -> Reason:
    """Return the finding of the rule about failed checkpoints."""
    return FailedInWindowReason.FOUND(
        checkpoints=checkpoints(count),
        subject=job,
        window=900,
        threshold=threshold,
        checkpoint=newest,
        failure=CheckpointFailureReason.EXPIRED(),
    )


def make_delivery(incident: Incident, channel: Channel, at: datetime, **fields: Any) -> Delivery:
    event = incident.events.first()
    sent_at = at + timedelta(seconds=34)
    subject = f"[{incident.severity}] {incident.sentence}"
    defaults = {"state": DeliveryState.SENT, "attempts": 2, "sent_at": sent_at, "created_at": at, "subject": subject}
    delivery = Delivery.objects.create(channel=channel, key=uuid.uuid4().hex, next_try_at=at, **{**defaults, **fields})
    Notification.objects.create(
        event=event,
        channel=channel,
        reason=NotificationReason.OPENED,
        state=NotificationState.GATHERED,
        due_at=at,
        **columns("text", stored(incident, "sentence")),
        delivery=delivery,
    )
    last = AttemptOutcome.SENT if delivery.state == DeliveryState.SENT else AttemptOutcome.AGAIN
    tries = [(at, AttemptOutcome.AGAIN, "connection refused"), (sent_at, last, "250 accepted")]
    for moment, outcome, answer in tries:
        DeliveryAttempt.objects.create(delivery=delivery, at=moment, outcome=outcome, answer=answer)
    return delivery


def make_attempt(job: Job, at: datetime, state: AttemptState = AttemptState.SUCCEEDED, **fields: Any) -> RestartAttempt:
    """Create a restart attempt with the steps that lead to `state`."""
    over = state in (AttemptState.SUCCEEDED, AttemptState.FAILED)
    defaults = {
        "epoch": job.restart_attempts.count() + 1,
        "trigger": RestartTrigger.AUTOMATIC,
        "reason": f"{job.name} has been FAILED since {at:%H:%M:%S %Z}: ConnectionRefusedError in the sink, task 2.",
        "engine_job_id": uuid.uuid4().hex,
        "restore_path": "file:/data/savepoints/savepoint-ae06e0-081519e0e700",
        "restore_is_savepoint": True,
        "restore_state_at": at - timedelta(minutes=11),
        "created_at": at,
        "deadline_at": at + timedelta(minutes=10),
        "ended_at": at + timedelta(seconds=21) if over else None,
    }
    attempt = RestartAttempt.objects.create(job=job, state=state, **{**defaults, **fields})
    names = ["check the state", "stop the job", "start the job", "wait until it runs"]
    path, new_id = attempt.restore_path, attempt.engine_job_id
    texts = [
        RecoveryReason.STATE_COMPLETE(path=path),
        RecoveryReason.NOT_RUNNING(),
        RecoveryReason.STARTED(id=new_id, how=RecoveryReason.FROM_STATE(path=path)),
        RecoveryReason.NEW_RUN_IS(state="RUNNING"),
    ]
    for position, (name, text) in enumerate(zip(names, texts, strict=True)):
        last = position == len(names) - 1
        step = StepState.SKIPPED if position == 1 else StepState.DONE if over or not last else StepState.RUNNING
        start = at + timedelta(seconds=5 * position)
        RestartStep.objects.create(
            attempt=attempt,
            name=name,
            state=step,
            **columns("text", "" if step is StepState.RUNNING else text),
            started_at=start,
            ended_at=None if step is StepState.RUNNING else start + timedelta(seconds=4.2),
        )
    return attempt
