"""A job's exception history, as `/jobs/:id/exceptions` shows it (Flink keeps 16)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from checkpointing.model.messages import ExceptionInfo

MAX_EXCEPTIONS = 16
_LONGEST_SENTENCE = 500


def sentence(message: str) -> str:
    """The first line of a failure's message: a program's may hold whole stack traces, which its entry keeps."""
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return first if len(first) <= _LONGEST_SENTENCE else f"{first[: _LONGEST_SENTENCE - 1]}…"


@dataclass(frozen=True)
class ExceptionEntry:
    """`attempt` is the driver's attempt that failed, None when no driver ran."""

    info: ExceptionInfo
    attempt: int | None


class ExceptionHistory:
    def __init__(self, size: int = MAX_EXCEPTIONS) -> None:
        self._entries: deque[ExceptionEntry] = deque(maxlen=size)
        self._recorded = 0

    def record(self, info: ExceptionInfo, attempt: int | None) -> None:
        self._recorded += 1
        self._entries.appendleft(ExceptionEntry(info, attempt))

    @property
    def entries(self) -> tuple[ExceptionEntry, ...]:
        """Newest first."""
        return tuple(self._entries)

    @property
    def truncated(self) -> bool:
        return self._recorded > len(self._entries)
