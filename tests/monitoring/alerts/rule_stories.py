"""Builders for the cases of the rule table: each case stores rows at seconds after its beginning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from monitoring.models import (
    AttemptState,
    AuditEntry,
    DiscoverySource,
    FoundResource,
    Job,
    ObjectiveBudget,
    ObjectiveDay,
    Outage,
    OutageKind,
    RestartAttempt,
    Run,
    RunStateChange,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)

HOUR, DAY = 3600, 86_400
CONFIG = {"interval": 60_000, "timeout": 300_000, "tolerable_failed_checkpoints": 1}  # derived limit: 15 min


@dataclass
class Story:
    """A writer of the rows of a case. Times are seconds after the beginning."""

    rows: Any
    run: Run
    ids: int = 0

    def at(self, seconds: float) -> datetime:
        return self.rows.now + timedelta(seconds=seconds)

    def failed(self, *moments: float) -> None:
        for moment in moments:
            self.ids += 1
            self.rows.failed(self.run, self.ids, self.at(moment))

    def aborted(self, *moments: float) -> None:
        """Store checkpoints that were in progress when the job stopped or restarted."""
        for moment in moments:
            self.ids += 1
            self.rows.failed(self.run, self.ids, self.at(moment), "Checkpoint Coordinator is suspending.")

    def stop_requested(self, moment: float, state: SavepointState = SavepointState.COMPLETED, **fields: object) -> None:
        Savepoint.objects.create(
            job=self.run.job,
            run=self.run,
            origin=SavepointOrigin.MANUAL,
            state=state,
            stops_job=True,
            requested_at=self.at(moment),
            **fields,
        )

    def cancel_requested(self, moment: float, **details: object) -> None:
        details = details or {"run": self.run.number, "engine_job_id": self.run.engine_job_id}
        entry = AuditEntry.objects.create(
            actor="olga", action="job.cancel", target=f"job {self.run.job.name}", details=details
        )
        AuditEntry.objects.filter(pk=entry.pk).update(at=self.at(moment))

    def attempt(self, began: float, ended: float, trigger: str = "manual", **fields: object) -> None:
        """Store a restart attempt. `fields` link it to its old or its new run."""
        defaults = {"engine_job_id": "a" * 32, "state": AttemptState.SUCCEEDED, "reason": ""}
        RestartAttempt.objects.create(
            job=self.run.job,
            epoch=self.run.job.restart_attempts.count() + 1,
            trigger=trigger,
            created_at=self.at(began),
            ended_at=self.at(ended),
            deadline_at=self.at(ended),
            **{**defaults, **fields},
        )

    def configured(self, **config: int) -> None:
        Run.objects.filter(pk=self.run.pk).update(checkpoint_config=CONFIG | config)

    def completed(self, *moments: float, **figures: int) -> None:
        for moment in moments:
            self.ids += 1
            triggered = self.at(moment) - timedelta(seconds=1)
            self.rows.checkpoint(
                self.run, self.ids, triggered_at=triggered, latest_ack_at=self.at(moment), final=True, **figures
            )

    def sized(self, **sizes: int) -> None:
        """Store a checkpoint of a state size at each time, as in `sized(_0=10, _60=20)`."""
        for moment, size in sizes.items():
            self.completed(float(moment[1:]), state_size=size)

    def savepoint(self, moment: float, state: SavepointState = SavepointState.COMPLETED) -> None:
        done = {"completed_at": self.at(moment)} if state == SavepointState.COMPLETED else {}
        Savepoint.objects.create(
            job=self.run.job,
            run=self.run,
            origin=SavepointOrigin.MANUAL,
            state=state,
            requested_at=self.at(moment),
            failure="" if done else "No space left on device.",
            path=f"file:/savepoints/{moment}" if done else "",
            **done,
        )

    def ends(self, moment: float, state: str) -> None:
        Run.objects.filter(pk=self.run.pk).update(state=state, ended_at=self.at(moment), exception="OutOfMemoryError")

    def starts_again(self, moment: float) -> None:
        self.run = self.rows.run(self.run.job, started_at=self.at(moment), checkpoint_config=CONFIG)

    def scheduled(self, cron: str, since: float = 0) -> None:
        """Give the job this schedule. Its first run ended a minute before `since`."""
        Run.objects.filter(pk=self.run.pk).update(state="FINISHED", ended_at=self.at(since - 60))
        Job.objects.filter(pk=self.run.job_id).update(run_cron=cron, run_cron_since=self.at(since))

    def runs(self, began: float, ended: float | None, state: str = "FINISHED", **outcome: object) -> None:
        self.run = self.rows.run(
            self.run.job,
            "RUNNING" if ended is None else state,
            started_at=self.at(began),
            outcome=outcome,
            ended_at=None if ended is None else self.at(ended),
        )

    def restarts(self, *moments: float) -> None:
        for moment in moments:
            RunStateChange.objects.create(run=self.run, at=self.at(moment), source="RUNNING", target="RESTARTING")

    def budget(self, *days: tuple[int, int], percent: float = 99) -> None:
        """Give the job an objective over one day, and store (counted, missed) of each UTC day from that of NOW on."""
        goal = {"percent": percent, "limit_ms": 30_000, "days": 1}
        for number, (counted, missed) in enumerate(days):
            day = (self.rows.now + timedelta(days=number)).date()
            row = {"limit_ms": 30_000, "counted": counted, "missed": missed}
            ObjectiveDay.objects.create(job=self.run.job, day=day, **row)
        newest = {"counted": 0, "missed": 0, "measured_at": self.rows.now}
        ObjectiveBudget.objects.create(job=self.run.job, **newest, **goal)

    def outage(self, began: float, ended: float | None, kind: OutageKind = OutageKind.NO_ANSWER) -> None:
        Outage.objects.create(
            cluster=self.run.job.cluster, kind=kind, began_at=self.at(began), ended_at=self.at(ended) if ended else None
        )

    def deployment_problem(self, since: float) -> None:
        """Let the platform report a problem of the cluster's deployment, which lasts."""
        at, source = self.at(since), DiscoverySource.objects.create(name="east")
        values = {"found_at": at, "changed_at": at, "problem": "no quota", "problem_since": at}
        FoundResource.objects.create(source=source, cluster=self.run.job.cluster, name="orders", **values)


@dataclass(frozen=True)
class Case:
    """A case of a rule. `expected` has when incidents open and close, in seconds; None: still open at the end."""

    kind: str
    name: str
    tell: Callable[[Story], None]
    expected: list[tuple[float, float | None]]
    rule: dict[str, Any] = field(default_factory=dict)
    until: float = HOUR
    step: float = 1300


def in_minutes(*moments: float) -> list[float]:
    return [60 * moment for moment in moments]
