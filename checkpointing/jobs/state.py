"""One job's status: moves only along the table in `status`, each recorded with its time and cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from checkpointing.clock import Clock
from checkpointing.jobs.exceptions import sentence
from checkpointing.model.status import TRANSITIONS, IllegalTransition, JobStatus

# A job that restarts for months must not grow its record without bound; the newest moves are the ones asked for.
MOVES_KEPT = 200


@dataclass(frozen=True)
class Move:
    """`cause` is one line."""

    source: JobStatus | None
    target: JobStatus
    at_ms: int
    cause: str


class JobState:
    """`timestamps` is Flink's: when each status was entered last, 0 when never."""

    def __init__(self, clock: Clock, cause: str, on_move: Callable[[Move], None] = lambda move: None) -> None:
        self._clock = clock
        self._on_move = on_move
        self._moves: list[Move] = []
        self.timestamps: dict[JobStatus, int] = dict.fromkeys(JobStatus, 0)
        self._record(None, JobStatus.INITIALIZING, cause)

    @property
    def status(self) -> JobStatus:
        return self._moves[-1].target

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(self._moves)

    @property
    def started_ms(self) -> int:
        return self.timestamps[JobStatus.INITIALIZING]

    @property
    def last_modified_ms(self) -> int:
        return self._moves[-1].at_ms

    @property
    def ended_ms(self) -> int | None:
        """When the job ended everywhere; None while it may go on."""
        return self._moves[-1].at_ms if self.status.globally_terminal else None

    def move(self, target: JobStatus, cause: str) -> None:
        """IllegalTransition when the table has no such edge."""
        if target not in TRANSITIONS[self.status]:
            raise IllegalTransition(self.status, target)
        self._record(self.status, target, cause)

    def _record(self, source: JobStatus | None, target: JobStatus, cause: str) -> None:
        move = Move(source, target, self._clock.now_ms(), sentence(cause))
        self._moves = [*self._moves[-MOVES_KEPT + 1 :], move]
        self.timestamps[target] = move.at_ms
        self._on_move(move)
