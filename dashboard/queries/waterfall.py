"""How one checkpoint went, subtask by subtask: from its trigger over barrier, alignment, sync and async to the
acknowledgement.

The phases are told as lengths. An aligned subtask goes through them one after the other. An unaligned one takes its
snapshot when the first barrier comes, so its alignment runs beside sync and async. Lengths are measured on the task
manager and the whole on the job manager, so the phases may add up to a little more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from monitoring.models import OperatorCheckpoint

MOST_LANES = 40
# As the page names them, in the order of time.
PHASES = ("start-delay", "alignment", "sync", "async", "rest")


@dataclass(frozen=True)
class Bar:
    """In ms since the trigger. `beside`: another phase of the subtask runs at the same time."""

    phase: str
    start: int
    length: int
    beside: bool = False


@dataclass(frozen=True)
class Lane:
    """A subtask; without bars where it did not acknowledge or the engine told no figures."""

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
    length: int  # of the drawing, ms
    left_out: int  # subtasks that were quicker than all drawn

    @property
    def ticks(self) -> list[tuple[int, float]]:
        """Moments in ms and their places in percent."""
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
        beside = unaligned and phase == "alignment"
        if length:
            bars.append(Bar(phase, at, length, beside))
        at += 0 if beside else length
    return [*bars, Bar("rest", at, took - at)] if took > at else bars


def _at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None
