"""Random sequences of events of a job, its engine, Waymark's workers and the people who use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from django.db.models import Q
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from monitoring import pauses
from monitoring.models import AutomationPause, RestartAttempt, RestartDecision, RestartTrigger, Savepoint, Verdict
from monitoring.recovery.attempt import AttemptOpen
from monitoring.recovery.breaker import close_breaker
from monitoring.recovery.manual import RestartRefused, cancel_attempt, change_and_restart, restart_from
from monitoring.recovery.states import restore_candidates
from monitoring.savepoints.request import SavepointDeferred, request_savepoint
from tests.monitoring.fire.engine import FORGOTTEN, PlayedJob
from tests.monitoring.fire.world import BYSTANDER, LAUNCH, NAME, World

# The longest time until a job manager that lost its leadership revokes a FAILED status, and until a new leader has
# recovered its jobs (FLINK-39704; monitoring/engine/evidence.py).
TAKEN_BACK_WITHIN_S = 1.9
RECOVERED_WITHIN_S = 25.0
WAITS = st.sampled_from([1, 2, 2, 2, 3, 6, 12, 35, 95, 200])
DIES = st.sampled_from([True, True, True, False])
CALLS = st.sets(st.sampled_from(["run", "validate", "trigger", "stop", "status", "cancel", "overview"]), max_size=3)
REFUSALS = st.sampled_from([(400, "No."), (401, "Who are you?"), (429, "Too many."), (500, "Oh."), (503, "Not now.")])
ACTS = ("die", "take_back", "forget", "go_silent", "overtaken", "second_worker", "click", "pause", "started_elsewhere")
# The steps of time at the end without faults: first small, then as long as claims, hold-downs, back-offs, timeouts.
CALM_S = (*[2] * 6, 5, 10, 20, 35, 60, 95, 95, 200, 400, 400, 700, 700, 1000, *[2] * 4, 3700, *[2] * 8)


class FireMachine(RuleBasedStateMachine):
    """A state machine of faults. `seen` counts the events of all runs, so that tests can check that faults occurred."""

    seen: ClassVar[Counter[str]] = Counter()

    @initialize(
        skew_s=st.sampled_from([0, -300, 300]),
        can_validate=st.booleans(),
        per_hour=st.sampled_from([1, 3, 6, 20]),
        last_kill=st.integers(0, 30),
    )
    def begin(self, skew_s: float, can_validate: bool, per_hour: int, last_kill: int) -> None:
        self.last_kill = last_kill
        self.world = World(skew_s, can_validate, per_hour)
        self.engine = self.world.engine
        self.forgotten: tuple[PlayedJob, float] | None = None
        self.judged = 0

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.calm_down()
        finally:
            self.world.close()

    # --- cycles of the workers

    @rule(dies=DIES, seconds=WAITS)
    def cycle(self, dies: bool, seconds: float) -> None:
        if dies:
            self.die()
        self.world.wait(seconds)
        self.world.cycle()

    @rule(dies=DIES, seconds=WAITS, times=st.integers(2, 5))
    def cycles(self, dies: bool, seconds: float, times: int) -> None:
        self.cycle(dies, seconds)
        for _ in range(times - 1):
            self.cycle(False, seconds)

    @rule(dies=DIES, seconds=WAITS, point=st.integers(0, 50))
    def a_worker_is_killed(self, dies: bool, seconds: float, point: int) -> None:
        if dies:
            self.cycle(True, 1)
        self.seen["killed"] += self.world.struck(point, None, seconds)

    @rule(dies=DIES, seconds=WAITS, point=st.integers(0, 40), act=st.sampled_from(ACTS))
    def something_happens_between_two_steps(self, dies: bool, seconds: float, point: int, act: str) -> None:
        if dies:
            self.cycle(True, 1)
        self.seen[f"{act} between two steps"] += self.world.struck(point, self._action(act), seconds)

    @rule(dies=DIES, seconds=WAITS, lost=CALLS, cut=CALLS, refused=CALLS, refusal=REFUSALS)
    def answers_are_lost(
        self, dies: bool, seconds: float, lost: set[str], cut: set[str], refused: set[str], refusal: tuple[int, str]
    ) -> None:
        """Lose answers of calls after they were executed (`lost`) or before (`cut`), or refuse calls."""
        if dies:
            self.cycle(True, 1)
        self.engine.loses_answer_of, self.engine.loses_request_of = lost, cut
        self.engine.answers = dict.fromkeys(refused, refusal)
        try:
            self.cycles(False, seconds, 3)
        finally:
            self.engine.loses_answer_of, self.engine.loses_request_of, self.engine.answers = set(), set(), {}

    # --- events of the engine

    def die(self) -> None:
        if (run := self.world.living()) is not None:
            self.engine.end(run)
            self.seen["died"] += 1

    @rule(times=st.integers(1, 3))
    def die_again_and_again(self, times: int) -> None:
        for _ in range(times):
            self.cycles(True, 3, 4)

    @rule(times=st.integers(1, 2))
    def a_leader_changes(self, times: int) -> None:
        """Report the job as FAILED for a moment, as a changing leader does."""
        for _ in range(times):
            self.cycle(True, 0.9)
        self.take_back()

    @rule()
    def take_back(self) -> None:
        """Let a run live again that has just FAILED, or that FAILED earlier and has not been restarted."""
        newest = self.engine.runs(NAME)[-1:]
        for run in self.engine.runs(NAME):
            if run.state != "FAILED" or run.died_at is None or self.engine.lacks(run.savepoint_path):
                continue
            if self.world.true_s - run.died_at <= TAKEN_BACK_WITHIN_S or (newest == [run] and not self._launching()):
                self.engine.come_back(run)
                self.seen["taken back"] += 1
                return

    @rule()
    def forget(self) -> None:
        """Let the engine forget the job: a replaced job manager has not recovered it (yet)."""
        if (run := self.world.living()) is not None:
            self.engine.forget(run)
            self.forgotten = (run, self.world.true_s)

    @rule()
    def recover(self) -> None:
        if self.forgotten is None:
            return
        run, since = self.forgotten
        if self.world.true_s - since <= RECOVERED_WITHIN_S and self.world.living() is None:
            self.engine.come_back(run)
            self.seen["recovered"] += 1
        self.forgotten = None

    @rule()
    def go_silent(self) -> None:
        self.engine.silent = True

    @precondition(lambda self: self.engine.silent)
    @rule()
    def answer_again(self) -> None:
        self.engine.silent = False

    @rule()
    def checkpoint(self) -> None:
        if (run := self.world.living()) is not None:
            self.world.save_states(run)

    @rule(slow=st.booleans())
    def start_slowly(self, slow: bool) -> None:
        self.engine.starts_as = "CREATED" if slow else "RUNNING"
        self._all_run()

    @rule()
    def lose_a_state(self) -> None:
        if states := restore_candidates(self.world.job):
            self.engine.stored.discard(states[0].path)

    # --- clocks

    @rule(seconds=st.sampled_from([-3600, -90, -5, 30, 3600]))
    def step_the_clock(self, seconds: float) -> None:
        self.world.offset_s += seconds

    # --- people

    @rule(stop_first=st.booleans())
    def click(self, stop_first: bool = True) -> None:
        job = self.world.job
        states = restore_candidates(job)
        if states:
            self._ask(lambda: restart_from(job, states[0].path, "ada", self.world.now, stop_first))

    @rule()
    def click_what_is_offered_first(self) -> None:
        self._ask(lambda: restart_from(self.world.job, None, "ada", self.world.now))

    @rule()
    def upgrade(self) -> None:
        job = self.world.job
        launch = {**LAUNCH, "parallelism": 4}
        self._ask(lambda: change_and_restart(job, launch, "rescale", None, "ada", self.world.now))

    @rule()
    def cancel(self) -> None:
        if (attempt := self.world.open_attempt()) is not None:
            cancel_attempt(attempt, "ada", self.world.now)

    @rule()
    def save(self) -> None:
        try:
            request_savepoint(self.world.job, "manual", "ada", self.world.now)  # type: ignore[arg-type]
        except SavepointDeferred:
            return

    @rule()
    def pause(self) -> None:
        pauses.pause(None, "we look into it", self.world.now + timedelta(minutes=10), "ada", self.world.now)

    @rule()
    def end_pauses(self) -> None:
        for each in AutomationPause.objects.filter(ended_at=None):
            pauses.end(each, "ada", self.world.now)

    @rule()
    def close_the_breaker(self) -> None:
        close_breaker(self.world.job, "mended", "ada", self.world.now)

    @rule()
    def stop_it_by_the_command_line(self) -> None:
        if (run := self.world.living()) is not None:
            self.engine.end(run, "CANCELED")
            self.seen["stopped by hand"] += 1

    @rule()
    def started_elsewhere(self) -> None:
        """Start the job on the engine without Waymark, as a person does if no run lives."""
        if self.world.living() is None and not self.engine.silent and self.world.states:
            self.engine.begin(NAME, max(self.world.states))
            self.seen["started by hand"] += 1

    # --- invariants

    @invariant()
    def one_life_at_a_time(self) -> None:
        if not hasattr(self, "world"):
            return
        assert self.engine.most_at_once[NAME] <= 1, self.world.story()
        assert [run.state for run in self.engine.runs(BYSTANDER)] == ["RUNNING"]

    @invariant()
    def no_launch_was_wrong(self) -> None:
        if not hasattr(self, "world"):
            return
        for launch in self.engine.launches[self.judged :]:
            # A job ID whose launch failed because its snapshot was missing is named in the attempt's steps.
            its = Q(engine_job_id=launch.job_id) | Q(steps__text__contains=launch.job_id)
            attempt = RestartAttempt.objects.filter(its).order_by("epoch").last()
            assert attempt is not None, f"nobody decided {launch}"
            # Without validation, a launch from a guessed path of a checkpoint may fail on the engine.
            known = launch.path in self._states() or self.engine.lacks(launch.path)
            assert known, f"empty, or from nowhere: {launch}\n{self.world.story()}"
            assert launch.name == NAME
            self.seen[f"{attempt.trigger} launches"] += 1
            ended = [state for _, state in launch.others]
            assert not set(ended) - {"FAILED", "CANCELED", "FINISHED", FORGOTTEN}, f"{launch}\n{self.world.story()}"
            if attempt.trigger == RestartTrigger.AUTOMATIC and ended:
                assert ended[-1] in ("FAILED", FORGOTTEN), f"somebody had stopped it: {launch}\n{self.world.story()}"
        self.judged = len(self.engine.launches)

    @invariant()
    def only_people_stop_jobs(self) -> None:
        if not hasattr(self, "world"):
            return
        asked = set(
            RestartAttempt.objects.filter(trigger=RestartTrigger.MANUAL).values_list(
                "old_run__engine_job_id", flat=True
            )
        )
        stopped = {savepoint.job_id for savepoint in self.engine.savepoints.values() if savepoint.stops}
        assert stopped | set(self.engine.canceled_by_us) <= asked, self.world.story()

    @invariant()
    def one_attempt_for_each_epoch(self) -> None:
        if not hasattr(self, "world"):
            return
        attempts = self.world.attempts()
        assert [each.epoch for each in attempts] == list(range(1, len(attempts) + 1))
        assert self.world.job.epoch == len(attempts)
        assert sum(not each.ended_at for each in attempts) <= 1
        assert len({each.job_id for each in self.engine.launches}) == len(self.engine.launches)

    @invariant()
    def each_decision_is_a_row(self) -> None:
        if not hasattr(self, "world"):
            return
        decided = RestartDecision.objects.filter(verdict=Verdict.RESTART).count()
        assert decided == RestartAttempt.objects.filter(trigger=RestartTrigger.AUTOMATIC).count(), self.world.story()

    # --- the end

    def calm_down(self) -> None:
        """End all faults, and let the job and a worker die once more.

        Assert that the job runs again, or has stopped with a reason that people can read.
        """
        self.engine.silent, self.engine.starts_as = False, "RUNNING"
        self._all_run()
        self.end_pauses()
        self.a_worker_is_killed(dies=True, seconds=2, point=self.last_kill)
        self._wait_until(self._ended_well)
        if self.world.job.breaker_opened_at is not None:
            self.close_the_breaker()
            self._wait_until(self._ended_well)
        self.no_launch_was_wrong()
        self.one_life_at_a_time()
        self.only_people_stop_jobs()
        self.each_decision_is_a_row()

    def _wait_until(self, well: Callable[[], bool]) -> None:
        for seconds in CALM_S:
            self.cycle(False, seconds)
            self._all_run()
            if well():
                return
        raise AssertionError(f"it neither runs nor stands with a reason\n{self.world.story()}")

    def _ended_well(self) -> bool:
        if not self.world.settled():
            return False
        if self.world.runs():
            return self.world.told() is None
        return self.world.living() is None and (self.world.told() is not None or self._as_wished())

    def _as_wished(self) -> bool:
        run = self.world.job.current_run
        return run is not None and run.state in ("CANCELED", "FINISHED")

    def _all_run(self) -> None:
        for run in self.engine.runs(NAME):
            if run.state == "CREATED" and self.engine.starts_as == "RUNNING":
                run.state, run.moved = "RUNNING", self.engine.now_ms()

    # --- helpers

    def _launching(self) -> bool:
        attempt = self.world.open_attempt()
        return attempt is not None and attempt.launch_sent_at is not None

    def _action(self, name: str) -> Callable[[], None]:
        acts: dict[str, Callable[[], Any]] = {
            "overtaken": self.world.overtaken,
            "second_worker": self.world.cycle,
        }
        return acts.get(name) or getattr(self, name)

    def _ask(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (AttemptOpen, RestartRefused):
            self.seen["refused to a person"] += 1

    def _states(self) -> set[str]:
        taken = {savepoint.location for savepoint in self.engine.savepoints.values()}
        return self.world.states | taken | set(Savepoint.objects.values_list("path", flat=True))
