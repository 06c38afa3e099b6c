"""One round: a job dies on a separate cluster, and many faults occur while Waymark restarts it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from tests.monitoring.faults.machine import Process
from tests.monitoring.fire.engine import PlayedCluster, PlayedJob
from tests.monitoring.fire.world import NAME

LOST = ("run", "validate", "overview")
COMES_BACK_WITHIN_S = 1.5


class Killer:
    """A killer of workers: it sends SIGKILL and starts the workers again, one kill at a time."""

    def __init__(self, workers: tuple[Process, ...]) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self.kills = 0

    def strike(self, which: tuple[int, ...]) -> None:
        with self._lock:
            for number in which:
                self._workers[number].kill()
            for number in which:
                self._workers[number].start()
            self.kills += len(which)


class Round:
    """A round whose faults are drawn from `seed`.

    They are how the job dies, whether it returns by itself, which answers are lost, how slow the engine is, and whether
    it stops answering. Also, some workers are killed before, after or some time after a chosen request.
    """

    def __init__(self, number: int, engine: PlayedCluster, seed: int) -> None:
        self.number, self.engine = number, engine
        chance = random.Random(seed)
        self._chance = chance
        self.forgotten = chance.random() < 0.2
        self.taken_back = not self.forgotten and chance.random() < 0.25
        self.silent_s = chance.choice((0, 0, 0, 2, 5))
        self.cuts = {call: chance.randint(0, 2) for call in LOST}
        self.kill_at = chance.choice((("overview", 1), ("overview", 2), ("validate", 1), ("run", 1), ("run", 1)))
        self.kill_acted = chance.random() < 0.5
        self.kill_late_s = chance.choice((0.0, 0.0, chance.random() / 2))
        self.kill_which = chance.choice(((0,), (1,), (0, 1), (0, 1)))
        self._seen = dict.fromkeys(LOST, 0)
        self._lock = threading.Lock()
        self.killed = threading.Event()
        self.states: set[str] = set()
        run = engine.begin(NAME)
        for _ in range(2):
            self.states.add(engine.checkpoint(run))

    def __str__(self) -> str:
        kill = f"{self.kill_which} at {self.kill_at} {'after' if self.kill_acted else 'before'}+{self.kill_late_s:.2f}s"
        how = "forgotten" if self.forgotten else "taken back" if self.taken_back else "FAILED"
        return f"round {self.number}: {how}, silent {self.silent_s} s, cuts {self.cuts}, kills {kill}"

    def begin(self, killer: Killer) -> None:
        """Let the job die. From now on `meet` decides about faults."""
        self._killer = killer
        self.engine.meet = self.meet
        run = self.engine.living(NAME)
        assert run is not None
        if self.forgotten:
            with self.engine.lock:
                del self.engine.jobs[run.id]
        else:
            self.engine.end(run)
        if self.taken_back:
            self._later(self._chance.uniform(0.2, COMES_BACK_WITHIN_S), lambda: self._come_back(run))
        if self.silent_s:
            self._later(self._chance.uniform(0.0, 6.0), self._fall_silent)

    def meet(self, call: str, acted: bool) -> bool:
        if not acted:
            time.sleep(self._chance.uniform(0.0, 0.25))  # a slow engine leaves time for kills between the steps
        if call not in self._seen:
            return False
        with self._lock:
            if not acted:
                self._seen[call] += 1
            strikes = not self.killed.is_set() and self._is_the_moment(call, acted)
            cut = acted and self.cuts[call] > 0 and (call != "overview" or self._seen["run"] > 0)
            if strikes:
                self.killed.set()
            if cut:
                self.cuts[call] -= 1
        if strikes:
            which = self.kill_which
            self._later(self.kill_late_s, lambda: self._killer.strike(which))
            if not self.kill_late_s:
                self._wait_for_it()
        return cut

    def _is_the_moment(self, call: str, acted: bool) -> bool:
        """Return whether the kill is due. For `overview`, which pollers call constantly, four more calls are needed."""
        wanted, times = self.kill_at
        return call == wanted and acted == self.kill_acted and self._seen[call] >= times + 4 * (wanted == "overview")

    def _wait_for_it(self) -> None:
        before = self._killer.kills
        until = time.monotonic() + 10
        while self._killer.kills == before and time.monotonic() < until:
            time.sleep(0.01)

    def _come_back(self, run: PlayedJob) -> None:
        self.engine.come_back(run)

    def _fall_silent(self) -> None:
        self.engine.silent = True
        self._later(self.silent_s, self._answer)

    def _answer(self) -> None:
        self.engine.silent = False

    @staticmethod
    def _later(seconds: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()

    def judge(self) -> None:
        """Assert, from the engine's records, that no two runs lived at once and every launch had a stored snapshot."""
        engine = self.engine
        assert engine.most_at_once[NAME] == 1, (str(self), engine.launches)
        assert len({each.job_id for each in engine.launches}) == len(engine.launches), (str(self), engine.launches)
        for launch in engine.launches:
            assert launch.path in self.states, f"empty, or from nowhere: {launch} in {self}"
            assert all(state == "FAILED" for _, state in launch.others), f"it lived: {launch} in {self}"
        if self.taken_back:
            assert not engine.launches, f"it came back by itself: {self}"
        else:
            assert len(engine.launches) == 1, (str(self), engine.launches)
        assert not engine.canceled_by_us
