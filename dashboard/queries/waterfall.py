"""The phases of one checkpoint in each subtask: start delay, alignment, sync, async and the rest of the duration.

The engine reports only the duration of each phase. The phases of an aligned subtask follow one another. An unaligned
subtask takes its snapshot at the first barrier, so its alignment overlaps sync and async. The task manager measures
the phases and the job manager the total, so the sum of the phases may slightly exceed the total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from monitoring.models import OperatorCheckpoint

MOST_LANES = 40
# The CSS names of the phases, in chronological order.
PHASES = ("start-delay", "alignment", "sync", "async", "rest")


@dataclass(frozen=True)
class Bar:
    """A phase in ms since the trigger. With `overlaps`, another phase of the subtask runs at the same time."""

    phase: str
    start: int
    length: int
    overlaps: bool = False


@dataclass(frozen=True)
class Lane:
    """A subtask. It has no bars if it did not acknowledge or if the engine reported no durations."""

    operator: str
    subtask: int
    end_to_end: int | None
    bars: tuple[Bar, ...]
    lengths: dict[str, int | None]

    @property
    def end(self) -> int:
        return max([self.end_to_end or 0, *(bar.start + bar.length for bar in self.bars)])


@dataclass(frozen=True)
class Waterfall:
    lanes: Sequence[Lane]
    length: int  # the length of the time axis in ms
    left_out: int  # the number of faster subtasks that are not drawn

    @property
    def ticks(self) -> list[tuple[int, float]]:
        """Return the ticks of the time axis: times in ms and positions in percent."""
        return [(round(self.length * part / 4), part * 25.0) for part in range(5)]


def waterfall_of(operators: Iterable[OperatorCheckpoint]) -> Waterfall:
    lanes = [lane for operator in operators for lane in _lanes(operator)]
    slowest = sorted(range(len(lanes)), key=lambda n: (lanes[n].end_to_end is not None, -lanes[n].end))[:MOST_LANES]
    drawn = [lanes[place] for place in sorted(slowest)]
    return Waterfall(drawn, max((lane.end for lane in drawn), default=0) or 1, len(lanes) - len(drawn))


def _lanes(operator: OperatorCheckpoint) -> Iterator[Lane]:
    for subtask in range(max(operator.num_subtasks, len(operator.subtask_ack_at))):
        took = _at(operator.subtask_end_to_end, subtask)
        lengths = {
            "start-delay": _at(operator.subtask_start_delay, subtask),
            "alignment": _at(operator.subtask_alignment, subtask),
            "sync": _at(operator.subtask_sync, subtask),
            "async": _at(operator.subtask_async, subtask),
        }
        bars = _bars(lengths, took, bool(_at(operator.subtask_unaligned, subtask))) if took is not None else []
        rest = next((bar.length for bar in bars if bar.phase == "rest"), None if took is None else 0)
        yield Lane(operator.name, subtask, took, tuple(bars), {**lengths, "rest": rest})


def _bars(lengths: dict[str, int | None], took: int, unaligned: bool) -> list[Bar]:
    bars, at = [], 0
    for phase in PHASES[:-1]:
        length = max(0, lengths[phase] or 0)
        overlaps = unaligned and phase == "alignment"
        if length:
            bars.append(Bar(phase, at, length, overlaps))
        at += 0 if overlaps else length
    return [*bars, Bar("rest", at, took - at)] if took > at else bars


def _at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None
