"""One installation and the cluster that it polls, on clocks that the test moves.

Waymark's poller, savepoints and recovery run over real PostgreSQL rows and real HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from threading import Semaphore
from unittest.mock import patch

from django.db import transaction

from monitoring.models import AttemptState, Cluster, Incident, IncidentKind, IncidentState, Job, RestartAttempt
from monitoring.models.recovery import ENDED
from monitoring.polling.poller import Poller
from monitoring.recovery import cycle as recovery
from monitoring.recovery import moving
from monitoring.savepoints import cycle as savepoints
from tests.monitoring.fake_job_manager import serving
from tests.monitoring.fire.engine import PlayedCluster, PlayedJob
from tests.monitoring.fire.fate import Fate, Killed

START = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
NAME, BYSTANDER = "flights", "hotels"
STRUCK_CYCLES = 8
LAUNCH = {
    "kind": "waymark",
    "jar_id": "program.py",
    "entry_class": "program:main",
    "program_args": [],
    "parallelism": 2,
    "configuration": {},
}


class World:
    """An installation and its cluster. `true_s` is the real time; Waymark's clock is wrong by `offset_s`."""

    def __init__(self, skew_s: float, can_validate: bool, per_hour: int) -> None:
        self.true_s, self.offset_s = START.timestamp(), 0.0
        self._left = ExitStack()
        self._left.enter_context(transaction.atomic())
        self._left.callback(transaction.set_rollback, True)
        self.engine = self._left.enter_context(serving(PlayedCluster(clock=lambda: self.true_s, skew_s=skew_s)))
        self.engine.can_validate = can_validate
        # `overtaken` simulates a second worker, which is a second process with its own semaphore.
        self._left.enter_context(patch.object(moving, "_moves", Semaphore(2)))
        self.fate = Fate()
        self._left.callback(self.fate.lift)
        self._poller: Poller | None = None
        self._left.callback(self._drop_poller)
        self.states = set[str]()
        run = self.engine.begin(NAME)
        self.engine.begin(BYSTANDER)
        self.save_states(run)
        self.cluster = Cluster.objects.create(name="east", rest_url=self.engine.url, poll_interval_s=1)
        self.poll()
        Job.objects.filter(name=NAME).update(launch=LAUNCH, auto_restart=True, max_restarts_per_hour=per_hour)

    def close(self) -> None:
        self._left.close()

    # --- clocks

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.true_s + self.offset_s, UTC)

    def wait(self, seconds: float) -> None:
        self.true_s += seconds

    # --- Waymark

    @property
    def job(self) -> Job:
        return Job.objects.select_related("cluster", "current_run").get(name=NAME)

    def attempts(self) -> list[RestartAttempt]:
        return list(RestartAttempt.objects.filter(job__name=NAME).order_by("epoch"))

    def open_attempt(self) -> RestartAttempt | None:
        return RestartAttempt.objects.exclude(state__in=ENDED).first()

    def told(self) -> Incident | None:
        """Return the open incident of the job, if there is one."""
        ours = Incident.objects.filter(kind=IncidentKind.NOT_RESTARTED, job__name=NAME)
        return ours.exclude(state=IncidentState.RESOLVED).first()

    def poll(self) -> None:
        if self._poller is None:
            self._poller = Poller(lambda: self.now).__enter__()
        self._poller.start_due()
        while self._poller.in_flight:
            self._poller.serve(30.0)

    def cycle(self) -> str:
        """Run each tick once, on one worker."""
        self.poll()
        return f"{savepoints.advance(self.now)} {recovery.advance(self.now)}"

    def struck(self, point: int, act: Callable[[], None] | None, seconds: float) -> bool:
        """Run cycles until the fault occurs at the chosen point. A killed worker is replaced by another process.

        The cycles are `seconds` apart. Return False if they had fewer points.
        """
        self.fate.strike(point, act)
        for _ in range(STRUCK_CYCLES):
            self.wait(seconds)
            try:
                self.cycle()
            except Killed:
                self._drop_poller()
                return True
            if not self.fate.waits:
                return True
        self.fate.spare()
        return False

    def overtaken(self) -> None:
        """Stop this worker for longer than its claims last, while another worker runs cycles."""
        for _ in range(2):
            self.wait(100)
            self.cycle()

    def _drop_poller(self) -> None:
        if self._poller is not None:
            self._poller.__exit__()
        self._poller = None

    # --- the engine

    def living(self) -> PlayedJob | None:
        return self.engine.living(NAME)

    def save_states(self, run: PlayedJob) -> None:
        for _ in range(2):
            self.states.add(self.engine.checkpoint(run))

    # --- the end

    def settled(self) -> bool:
        return self.open_attempt() is None and not self.job.savepoints.filter(state__in=("requested", "in_progress"))

    def runs(self) -> bool:
        run, stored = self.living(), self.job.current_run
        return run is not None and stored is not None and stored.engine_job_id == run.id and stored.state == "RUNNING"

    def story(self) -> str:
        """Return the history of the runs and attempts, for the message of a failed assertion."""
        lines = [f"clock {self.now:%H:%M:%S}, told: {self.told() and self.told().sentence}"]  # type: ignore[union-attr]
        lines += [f"{run.id[:6]} {run.state} from {run.savepoint_path}" for run in self.engine.runs(NAME)]
        for each in self.attempts():
            state = AttemptState(each.state).label
            lines.append(f"{each.epoch} {each.trigger} {state} {each.engine_job_id[:6]}: {each.reason} {each.error}")
            lines += [
                f"   {step.started_at:%H:%M:%S} {step.name}: {step.state}, {step.text}" for step in each.steps.all()
            ]
        return "\n".join(lines)
