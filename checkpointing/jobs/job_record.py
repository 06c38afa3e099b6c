"""The data of one job: its settings, its status with every move, its attempts and its exceptions.

The job master, the job's requests and the conversation with its driver write it. All others only read it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from checkpointing.clock import Clock
from checkpointing.jobs.attempt import Attempt, AttemptEnd
from checkpointing.jobs.python_environments.preparation import Preparation
from checkpointing.model.configuration import CheckpointConfiguration
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import ExceptionInfo, Vertex
from checkpointing.model.status import TRANSITIONS, IllegalTransition, JobStatus

logger = logging.getLogger(__name__)

ATTEMPTS_SHOWN = 20
MAX_EXCEPTIONS = 16
_LONGEST_SENTENCE = 500
# Limit the stored moves, so that the record of a job that restarts for months does not grow without bound.
MOVES_KEPT = 200


def first_line(message: str) -> str:
    """Return the first line of a failure's message. The exception entry keeps the rest, such as whole stack traces."""
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return first if len(first) <= _LONGEST_SENTENCE else f"{first[: _LONGEST_SENTENCE - 1]}…"


@dataclass(frozen=True)
class ExceptionEntry:
    """An exception with its attempt. `attempt` is the number of the failed attempt, None if no driver ran."""

    info: ExceptionInfo
    attempt: int | None


class ExceptionHistory:
    """The exceptions of a job, as `/jobs/:id/exceptions` shows them (Flink keeps 16)."""

    def __init__(self, size: int = MAX_EXCEPTIONS) -> None:
        self._entries: deque[ExceptionEntry] = deque(maxlen=size)
        self._recorded = 0

    def record(self, info: ExceptionInfo, attempt: int | None) -> None:
        self._recorded += 1
        self._entries.appendleft(ExceptionEntry(info, attempt))

    @property
    def entries(self) -> tuple[ExceptionEntry, ...]:
        """Return the exceptions, newest first."""
        return tuple(self._entries)

    @property
    def truncated(self) -> bool:
        return self._recorded > len(self._entries)


@dataclass(frozen=True)
class Move:
    """One change of the status. `cause` is one line."""

    source: JobStatus | None
    target: JobStatus
    at_ms: int
    cause: str


class JobState:
    """The status of a job.

    It moves only along the table in `model.status`, and each move is recorded with time and cause.

    `timestamps` are Flink's: when each status was entered last, 0 for never.
    """

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
        """Return when the job reached a globally terminal status, or None if it has not."""
        return self._moves[-1].at_ms if self.status.globally_terminal else None

    def move(self, target: JobStatus, cause: str) -> None:
        """Change the status. Raise IllegalTransition if the table does not allow it."""
        if target not in TRANSITIONS[self.status]:
            raise IllegalTransition(self.status, target)
        self._record(self.status, target, cause)

    def _record(self, source: JobStatus | None, target: JobStatus, cause: str) -> None:
        move = Move(source, target, self._clock.now_ms(), first_line(cause))
        self._moves = [*self._moves[-MOVES_KEPT + 1 :], move]
        self.timestamps[target] = move.at_ms
        self._on_move(move)


class JobRecord:
    """The data of one job. `attempt` is the newest one, `failure` the cause of FAILED.

    `python` is the preparation of the job's Python environment. `has_earlier_attempts`: the job had an attempt under an
    earlier job manager.
    """

    def __init__(self, graph: JobGraph, clock: Clock, *, recovered: bool) -> None:
        """Raise InvalidConfiguration if the graph's settings are not allowed."""
        self.graph = graph
        self.config = CheckpointConfiguration.parse(graph.configuration)
        self.exceptions = ExceptionHistory()
        self.attempt: Attempt | None = None
        self.attempts: list[Attempt] = []
        self.has_earlier_attempts = False
        self.num_restarts = 0
        self.num_rescales = 0
        self.failure: ExceptionInfo | None = None
        self.python: Preparation | None = None
        self._clock = clock
        self.state = JobState(clock, "recovered" if recovered else "submitted", self._log_move)

    @property
    def status(self) -> JobStatus:
        return self.state.status

    @property
    def has_run(self) -> bool:
        """Return whether the job was RUNNING once.

        For attempts under an earlier job manager this is unknown and assumed.
        """
        return self.has_earlier_attempts or self.state.timestamps[JobStatus.RUNNING] > 0

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        return self.attempt.vertices if self.attempt is not None else ()

    @property
    def greatest_batch(self) -> int:
        """Return the greatest batch number that drivers reported to this job manager, -1 before the first."""
        return max((attempt.greatest_batch for attempt in self.attempts), default=-1)

    @property
    def is_saved(self) -> bool:
        """Return whether a savepoint contains everything that the job has processed.

        This is the savepoint of a stop, the final savepoint of a job that ended by itself, or the one that it started
        from.
        """
        attempt = self.attempt
        return attempt is not None and (attempt.stopped_with is not None or attempt.has_nothing_to_save)

    def move(self, target: JobStatus, cause: str) -> None:
        """Change the status. Raise IllegalTransition if the table does not allow it."""
        self.state.move(target, cause)

    def prepare_python(self, preparation: Preparation) -> None:
        self.python = preparation

    def enter_attempt(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.attempts = [*self.attempts[-ATTEMPTS_SHOWN + 1 :], attempt]

    @property
    def environments(self) -> set[str]:
        """Return the names of the cached Python environments that the job uses, or is about to use."""
        names = set()
        if self.python is not None and self.python.prepared is not None:
            names.add(self.python.prepared.name)
        if self.attempt is not None and self.attempt.record.python_environment is not None:
            names.add(self.attempt.record.python_environment)
        return names

    def note_end(self, end: AttemptEnd) -> None:
        """End the current attempt. Only its first end counts."""
        if self.attempt is not None:
            self.attempt.end(end)

    def record_exception(self, info: ExceptionInfo) -> None:
        self.exceptions.record(info, self.attempt.number if self.attempt is not None else None)

    def info(self, name: str, message: str, *, recoverable: bool = True) -> ExceptionInfo:
        """Return a failure that the job manager itself detected now."""
        return ExceptionInfo(
            name=name,
            message=message,
            stacktrace=f"{name}: {message}",
            timestamp=self._clock.now_ms(),
            recoverable=recoverable,
        )

    def _log_move(self, move: Move) -> None:
        source = move.source.value if move.source else "-"
        logger.info(
            "job %s (%s): %s → %s: %s", self.graph.job_id, self.graph.name, source, move.target.value, move.cause
        )
