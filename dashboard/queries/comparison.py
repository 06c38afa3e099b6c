"""Compare two checkpoints, two runs or two time ranges of a job: figures, differences, and the largest changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import log2
from typing import Any

from django.utils.translation import gettext

from dashboard.queries.rolled import range_to_read
from dashboard.queries.series import Span
from dashboard.queries.summary import MEASURES, Summary, read_summary
from monitoring.history.rows import operators_of
from monitoring.models import Checkpoint, Job, OperatorCheckpoint, Run, RunException
from monitoring.units import bytes_text, duration_text

LARGEST_CHANGES_SHOWN = 3
# A change below this amount counts as noise, even if its ratio is large.
_NOTICED = {"ms": 20, "bytes": 4096, "count": 1, "percent": 1}
_MOST_OPERATORS = 50


@dataclass(frozen=True)
class Difference:
    """One figure before and after. `unit` is "ms", "bytes", "count" or "percent"."""

    label: str
    unit: str
    before: float | None
    after: float | None
    of: str = ""  # the operator's name, if the figure belongs to an operator

    @property
    def title(self) -> str:
        return f"{self.of}: {self.label}" if self.of else self.label

    @property
    def shown(self) -> str:
        """Return the label in the page's language. Its parts are separated by a comma and translated one by one."""
        return ", ".join(gettext(part) for part in self.label.split(", "))

    @property
    def change(self) -> float | None:
        return None if self.before is None or self.after is None else float(self.after) - float(self.before)

    @property
    def ratio(self) -> float | None:
        """Return `after` divided by `before`, or None if one is missing or `before` is 0."""
        return None if not self.before or self.after is None else float(self.after) / float(self.before)

    @property
    def weight(self) -> float:
        """Return the size of the change on a log scale. Twice and half weigh the same; noise weighs 0."""
        if abs(self.change or 0) < _NOTICED[self.unit]:
            return 0
        least = _NOTICED[self.unit]
        return abs(log2(max(self.after or 0, least) / max(self.before or 0, least)))

    @property
    def sentence(self) -> str:
        times = f" ({_ratio_text(self.ratio)})" if self.ratio and 0.001 <= self.ratio <= 1000 else ""
        named = f"{self.of}: {self.shown}" if self.of else self.shown
        return f"{named}: {self.text(self.before)} → {self.text(self.after)}{times}"

    @property
    def change_text(self) -> str:
        if not self.change:
            return gettext("unchanged") if self.change == 0 else "–"
        return f"{'+' if self.change > 0 else '−'}{self.text(abs(self.change))}"

    def text(self, value: float | None) -> str:
        if value is None:
            return "–"
        match self.unit:
            case "ms":
                return duration_text(value)
            case "bytes":
                return bytes_text(value)
            case "percent":
                return f"{value:.3g} %"
            case _:
                return f"{value:,.0f}"

    @property
    def texts(self) -> tuple[str, str]:
        return self.text(self.before), self.text(self.after)


def _ratio_text(ratio: float) -> str:
    return f"× {ratio:.3g}" if ratio >= 1 else f"÷ {1 / ratio:.3g}"


@dataclass(frozen=True)
class Comparison:
    """All differences. `groups` has titles and figures; `settings` has key, before and after of changed settings."""

    groups: list[tuple[str, list[Difference]]]
    settings: list[tuple[str, Any, Any]] = field(default_factory=list)
    left_out: int = 0

    @property
    def largest_changes(self) -> list[Difference]:
        """Return the largest changes, the largest first."""
        found = [each for _, group in self.groups for each in group if each.weight]
        return sorted(found, key=lambda each: -each.weight)[:LARGEST_CHANGES_SHOWN]


Side = Checkpoint | Run | Span


def compare(job: Job, a: Side, b: Side, now: datetime) -> Comparison:
    """Compare two sides, which are of the same type. Raises Unreadable."""
    match a, b:
        case Run(), Run():
            return compare_runs(job, a, b, now)
        case Span(), Span():
            return compare_spans(job, a, b)
        case Checkpoint(), Checkpoint():
            return compare_checkpoints(a, b)
        case _:
            raise TypeError(f"{a!r} cannot be compared with {b!r}")


def compare_checkpoints(a: Checkpoint, b: Checkpoint) -> Comparison:
    whole = [Difference(m.label, m.unit, getattr(a, m.name), getattr(b, m.name)) for m in MEASURES]
    subtasks = [
        Difference("Acknowledged subtasks", "count", a.num_acknowledged_subtasks, b.num_acknowledged_subtasks),
        Difference("Subtasks", "count", a.num_subtasks, b.num_subtasks),
    ]
    pairs = _pairs(a, b)
    operators = [(title, list(_operator(title, one, other))) for title, one, other in pairs[:_MOST_OPERATORS]]
    left_out = max(0, len(pairs) - _MOST_OPERATORS)
    return Comparison([("Whole checkpoint", [*whole, *subtasks]), *operators], left_out=left_out)


Pair = tuple[str, OperatorCheckpoint | None, OperatorCheckpoint | None]


def _pairs(a: Checkpoint, b: Checkpoint) -> list[Pair]:
    """Pair the operators of two checkpoints by their id, else by their name.

    An operator of a changed program may have the same name with another id.
    """
    after = operators_of(b)
    pairs: list[Pair] = []
    for one in operators_of(a):
        same = next((o for o in after if o.vertex_id == one.vertex_id), None)
        same = same or next((o for o in after if o.name == one.name), None)
        after = [other for other in after if other is not same]
        pairs.append((one.name, one, same))
    return [*pairs, *((other.name, None, other) for other in after)]


_OF_OPERATOR = (
    ("End to end duration", "ms", "end_to_end_duration"),
    ("Checkpointed size", "bytes", "checkpointed_size"),
    ("Full size", "bytes", "state_size"),
    ("Processed in flight", "bytes", "processed_data"),
    ("Subtasks", "count", "num_subtasks"),
)
_OF_SUBTASKS = (
    ("Start delay, maximum", "subtask_start_delay"),
    ("Alignment, maximum", "subtask_alignment"),
    ("Sync, maximum", "subtask_sync"),
    ("Async, maximum", "subtask_async"),
)


def _operator(title: str, a: OperatorCheckpoint | None, b: OperatorCheckpoint | None) -> Iterator[Difference]:
    for label, unit, name in _OF_OPERATOR:
        yield Difference(label, unit, getattr(a, name, None), getattr(b, name, None), title)
    for label, name in _OF_SUBTASKS:
        yield Difference(label, "ms", _highest(getattr(a, name, ())), _highest(getattr(b, name, ())), title)


def _highest(values: Iterable[int | None]) -> float | None:
    return max((float(value) for value in values if value is not None), default=None)


def compare_runs(job: Job, a: Run, b: Run, now: datetime) -> Comparison:
    first, second = _summaries(job, [Span(datetime(1970, 1, 1, tzinfo=UTC), now, run.number) for run in (a, b)])
    thrown, thrown_since = (RunException.objects.filter(run=run).count() for run in (a, b))
    counts = [
        *_outcomes(first, second),
        Difference("Exceptions", "count", thrown, thrown_since),
        Difference("Duration", "ms", _duration_ms(a, now), _duration_ms(b, now)),
    ]
    return Comparison([("Checkpoints", counts), ("Metrics", _metrics(first, second))], _settings(a, b))


def compare_spans(job: Job, a: Span, b: Span) -> Comparison:
    """Compare two time ranges. The settings are those of the run at the end of each range.

    A run that starts when the first range ends and the second one begins belongs to the second one.
    """
    first, second = _summaries(job, [a, b])
    exceptions = RunException.objects.filter(run__job=job)
    thrown, thrown_since = (exceptions.filter(at__gte=span.start, at__lt=span.end).count() for span in (a, b))
    started, started_since = (
        job.runs.filter(started_at__gte=span.start, started_at__lt=span.end).count() for span in (a, b)
    )
    counts = [
        *_outcomes(first, second),
        Difference("Exceptions", "count", thrown, thrown_since),
        Difference("Started runs", "count", started, started_since),
    ]
    before, after = (job.runs.filter(started_at__lt=span.end).order_by("-number").first() for span in (a, b))
    settings = _settings(before, after) if before and after and before != after else []
    return Comparison([("Checkpoints", counts), ("Metrics", _metrics(first, second))], settings)


def _outcomes(first: Summary, second: Summary) -> list[Difference]:
    return [
        Difference("Completed", "count", first.completed, second.completed),
        Difference("Failed", "count", first.failed, second.failed),
        Difference("Failure rate", "percent", _failure_rate(first), _failure_rate(second)),
    ]


def _metrics(first: Summary, second: Summary) -> list[Difference]:
    return [Difference(f"{m.label}, {row}", m.unit, x, y) for m, row, x, y in _figures(first, second)]


def _summaries(job: Job, spans: list[Span]) -> list[Summary]:
    """Return the summaries of the spans, without savepoints if possible.

    A savepoint writes the full state, so a run with savepoints would seem to write more. The roll-ups of long runs
    include savepoints, but there a few of them hardly change the result.
    """
    kind = "" if any(range_to_read(job, span).is_long for span in spans) else "checkpoint"
    return [read_summary(job, span, kind) for span in spans]


def _figures(first: Summary, second: Summary) -> Iterator[tuple[Any, str, float | None, float | None]]:
    for measure in MEASURES:
        for row in ("p50", "p95", "Maximum"):
            yield measure, row.lower(), first.of(row, measure.name), second.of(row, measure.name)


def _failure_rate(summary: Summary) -> float | None:
    ended = summary.completed + summary.failed
    return 100 * summary.failed / ended if ended else None


def _duration_ms(run: Run, now: datetime) -> float:
    return ((run.ended_at or now) - run.started_at).total_seconds() * 1000


def _settings(a: Run, b: Run) -> list[tuple[str, Any, Any]]:
    before, after = _flat_settings(a), _flat_settings(b)
    keys = [*before, *(key for key in after if key not in before)]
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


def _flat_settings(run: Run) -> dict[str, Any]:
    """Return a run's checkpoint settings and the parallelism of its operators as a flat mapping."""
    found: dict[str, Any] = {}
    for key, value in run.checkpoint_config.items():
        found |= {f"{key}.{inner}": v for inner, v in value.items()} if isinstance(value, dict) else {key: value}
    return found | {f"parallelism of {vertex['name']}": vertex["parallelism"] for vertex in run.vertices}
