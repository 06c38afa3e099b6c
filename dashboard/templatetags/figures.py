"""Template filters and tags that render numbers, times, badges and small charts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from html import escape as escape_plain
from typing import Any
from urllib.parse import urlsplit

from django import template
from django.db.models import Model
from django.template.context import RequestContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from dashboard import launch_wait
from dashboard.audit_texts import action_text, actor_name, reason_text, target_text
from dashboard.documentation import explained_codes
from dashboard.health import Freshness, Level
from dashboard.language import rendered, schedule_text
from dashboard.queries.activity import without_name
from dashboard.queries.fleet import JobRow
from dashboard.queries.ranking import RankedJob
from dashboard.queries.waterfall import Lane
from monitoring.alerts.defaults import DEFAULT_NAMES, FORMER_NAMES
from monitoring.alerts.failure_reason import checkpoint_failure
from monitoring.alerts.kinds import kinds
from monitoring.alerts.walk import Watch
from monitoring.masking import shown_launch
from monitoring.models import (
    AlertRule,
    AttemptState,
    Channel,
    ChannelKind,
    CheckpointStatus,
    Delivery,
    DeliveryState,
    IncidentState,
    Job,
    NotificationState,
    Objective,
    ObjectiveBudget,
    Run,
    RunState,
    Savepoint,
    SavepointState,
    Verdict,
)
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import Reason, from_json
from monitoring.savepoints.checking import can_be_checked
from monitoring.savepoints.retention_actions import policy_of
from monitoring.savepoints.schedule import timetable_of
from monitoring.units import (
    SHORT_DATE_AND_CLOCK,
    age_text,
    bytes_text,
    duration_text,
    span_ms_text,
    span_text,
    time_text,
)

register = template.Library()
LITTLE_LEFT = 20  # percentage of an objective's budget below which little is left


def _nothing() -> SafeString:
    return _dash(_("not known"))


@cache
def _dash(label: str) -> SafeString:
    return format_html('<span class="nothing" aria-label="{}">–</span>', label)


# The tone of each status word. The tone sets the colour of its badge.
_TONES: dict[str, str] = {
    **dict.fromkeys((RunState.RUNNING, RunState.FINISHED, CheckpointStatus.COMPLETED), "good"),
    **dict.fromkeys((RunState.FAILED, RunState.FAILING, RunState.LOST, CheckpointStatus.FAILED), "bad"),
    **dict.fromkeys((RunState.RESTARTING, RunState.SUSPENDED, RunState.CANCELLING, RunState.RECONCILING), "warn"),
    **dict.fromkeys((RunState.INITIALIZING, RunState.CREATED, CheckpointStatus.IN_PROGRESS), "busy"),
    **dict.fromkeys((SavepointState.COMPLETED, AttemptState.SUCCEEDED, DeliveryState.SENT, "done"), "good"),
    **dict.fromkeys((SavepointState.FAILED, DeliveryState.DEAD, IncidentState.OPEN, "critical"), "bad"),
    **dict.fromkeys(("failing", "overdue"), "bad"),
    **dict.fromkeys((SavepointState.DEFERRED, IncidentState.ACKNOWLEDGED, "warning", "degraded"), "warn"),
    **dict.fromkeys((SavepointState.REQUESTED, SavepointState.IN_PROGRESS, DeliveryState.PENDING, "running"), "busy"),
    **dict.fromkeys([s.value for s in AttemptState if s.open], "busy"),
    SavepointState.DISPOSING: "warn",
    Verdict.RESTART: "good",
    Verdict.PERSON: "bad",
    Verdict.BREAKER: "bad",
    **dict.fromkeys((IncidentState.RESOLVED, "healthy"), "good"),
    **dict.fromkeys((NotificationState.WAITING, "again"), "busy"),
    "given_up": "bad",
}


@register.filter
def translated(text: object) -> str:
    """Translate an English label or word of the code to the language of the page."""
    return _(str(text)) if text else ""


@register.filter
def duration(milliseconds: float | None) -> str:
    return duration_text(milliseconds) if milliseconds is not None else _nothing()


@register.filter(name="bytes")
def bytes_(size: float | None) -> str:
    return bytes_text(size) if size is not None else _nothing()


@register.filter
def more_bytes(size: float | None) -> str:
    """Render a difference of sizes, such as `+81.3 KB` or `−2.41 GB`."""
    if not size:
        return bytes_(size)
    return f"{'+' if size > 0 else '−'}{bytes_text(abs(size))}"


@register.filter
def figure(value: float | None, unit: str) -> str:
    """Render `value` as a duration or a size. `unit` is "ms" or "bytes"."""
    return duration(value) if unit == "ms" else bytes_(value)


@register.filter
def span(seconds: float | None) -> str:
    return span_text(seconds) if seconds is not None else _nothing()


@register.filter
def savepoint_retention(job: Job) -> str:
    """Return the retention as text, such as `keeps the newest 5 and those of the last 7 d`."""
    return rendered(policy_of(job).reason)


@register.filter
def savepoint_schedule(job: Job) -> str:
    """Return the schedule as text, such as `every 1 h` or `at 03:00 every day (Europe/Berlin)`."""
    return schedule_text(timetable_of(job))


@register.filter
def lag(seconds: float | None) -> str:
    """Render a delay, such as `6 s` or `2 min 10 s`."""
    return _nothing() if seconds is None else age_text(timedelta(seconds=seconds))


@register.filter
def span_ms(milliseconds: float | None) -> str:
    """Render a configured duration, such as `10 s`. Flink reports a disabled duration as its largest integer."""
    if milliseconds is None:
        return _nothing()
    return _("off") if milliseconds > 2**62 else span_text(milliseconds / 1000)


def _exact(at: datetime) -> str:
    """Return the time with milliseconds, because a checkpoint may take less than a second."""
    local = timezone.localtime(at)
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03} {local:%Z}"


def _time(at: datetime | None, kind: str, text: str) -> SafeString:
    if at is None:
        return _nothing()
    shown = f'<time datetime="{at.isoformat()}" data-{kind} title="{_exact(at)}">{escape_plain(text)}</time>'
    return mark_safe(shown)  # noqa: S308 - the text is escaped, all else is a time


@register.filter
def ago(at: datetime | None) -> SafeString:
    """Render an age such as `6 s ago`. The browser updates it, and shows the exact time on hover."""
    if at is None:
        return _nothing()
    return _time(at, "ago", _("%(age)s ago") % {"age": age_text(timezone.now() - at)})


@register.filter
def age(at: datetime | None) -> SafeString:
    """Render an age such as `6 s`, for columns whose heading says that it is an age."""
    return _time(at, "age", age_text(timezone.now() - at)) if at else _nothing()


@register.filter
def until(at: datetime | None) -> SafeString:
    """Render the time until a moment, such as `in 22 min`, or `due now` if it is past."""
    if at is None:
        return _nothing()
    left = at - timezone.now()
    return _time(at, "until", _("in %(age)s") % {"age": age_text(left)} if left > timedelta(0) else _("due now"))


@register.filter
def clock(at: datetime | None) -> SafeString:
    """Render a time of today as `14:02:36`, and of other days with the date."""
    if at is None:
        return _nothing()
    local = timezone.localtime(at)
    same_day = local.date() == timezone.localtime().date()
    return _time(at, "clock", f"{local:%H:%M:%S}" if same_day else time_text(local, SHORT_DATE_AND_CLOCK))


@register.filter
def iso_clock(text: str) -> SafeString:
    """Render an ISO text, for example from logs of deliveries, as `clock` does."""
    try:
        return clock(datetime.fromisoformat(text))
    except (TypeError, ValueError):
        return format_html("{}", text)


@register.filter
def channel_target(channel: Channel) -> str:
    """Return the receiver of a channel without secrets: mail addresses, a host or the name of a service."""
    match channel.kind:
        case ChannelKind.MAIL:
            return ", ".join(channel.settings.get("to", []))
        case ChannelKind.WEBHOOK:
            return urlsplit(str(channel.settings.get("url", ""))).hostname or ""
        case _:
            return str(channel.settings.get("service", ""))


@register.filter
def from_ms(milliseconds: int | None) -> datetime | None:
    """Convert epoch milliseconds to a time."""
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


@register.filter
def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@register.filter
def then(text: str, what: object) -> str:
    """Return `text` followed by `what`, for the ids of HTML elements."""
    return f"{text}{what}"


@register.filter
def key_text(key: str) -> str:
    """Translate a key of evidence or of a decision's facts, such as `checkpoint_ids`, to words."""
    return _(key.replace("_", " "))


@register.filter
def evidence_text(value: Any) -> str:
    """Render a value of evidence or of a decision's facts."""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return rendered(from_json(value) or plain(value))


@register.filter
def plain(value: Any) -> str:
    """Render a stored value as plain text: lists with commas, and `–` for an empty value."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {plain(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return "–" if value is None or value == "" else str(value)


# Keys of /checkpoints/config that hold milliseconds.
_MILLISECONDS = ("interval", "timeout", "min_pause", "aligned_checkpoint_timeout")


@register.filter
def setting(value: Any, key: str) -> str:
    """Render a value of the checkpoint configuration. `key` says whether it is in milliseconds."""
    if value is None:
        return _("off") if key == "interval" else "–"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if key in _MILLISECONDS and isinstance(value, int):
        return str(span_ms(value))
    return plain(value)


@register.filter
def lasted(start: datetime | None, end: datetime | None) -> str:
    if start is None or end is None:
        return _nothing()
    return duration_text((end - start).total_seconds() * 1000)


@register.filter
def long(start: datetime, end: datetime) -> str:
    """Render the time between two moments, such as `1 h 05 min`."""
    return age_text(end - start)


@register.simple_tag
def badge(word: str, label: str = "", *, tone: str = "") -> SafeString:
    """Render a status word with a dot. `tone` is good, warn, bad, busy or calm; by default, that of the word."""
    return format_html(
        '<span class="badge badge-{}">{}</span>', tone or _TONES.get(word, "calm"), translated(label or word)
    )


@register.filter
def tone(word: str) -> str:
    return _TONES.get(word, "calm")


@register.filter
def level_tone(level: Level) -> str:
    return _TONES.get(level.word, "calm")


register.filter("launch_shown", shown_launch)


@register.filter
def unverified(savepoint: Savepoint) -> bool:
    """Return whether Waymark has not checked a savepoint's files and cannot check them before a start from it."""
    if savepoint.state != SavepointState.COMPLETED or savepoint.checked_at is not None:
        return False
    return bool(savepoint.path) and not can_be_checked(savepoint.job, savepoint.path)


@register.filter
def subject_in(delivery: Delivery, subjects: Mapping[int, str]) -> str:
    """Return the subject of a message from `queries.messages.subjects`."""
    return subjects[delivery.pk]


register.filter("action_text", action_text)
register.filter("actor_name", actor_name)
register.filter("checkpoint_failure", checkpoint_failure)
register.filter("reason_text", reason_text)
register.filter("target_text", target_text)
register.filter("without_name", without_name)
register.filter("rendered", rendered)


@register.filter
def without_values(details: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the items of a stored object, without the keys `…_value` that have reasons as data."""
    return [(key, value) for key, value in details.items() if not key.endswith("_value")]


@register.filter
def reason(row: Model | Mapping[str, Any], column: str) -> str:
    """Render the reason in a column of a row, or in a key of a stored object, in the language of the page."""
    return rendered(_reason_in(row, column))


def _reason_in(row: Model | Mapping[str, Any], column: str) -> Reason | str:
    if isinstance(row, Model):
        return stored(row, column)
    return from_json(row.get(f"{column}_value")) or str(row[column])


@register.filter
def what_to_do(row: Model | Mapping[str, Any], column: str) -> str:
    """Return a link to the section of docs/errors.md on the reason in the column of a row; "" if there is none."""
    code = next((code for code in _codes_of(_reason_in(row, column)) if code in explained_codes()), None)
    if code is None:
        return ""
    address = reverse("documentation", args=["errors"])
    return format_html('<a href="{}#{}">{}</a>', address, code, _("What to do"))


def _codes_of(reason: object) -> Iterator[str]:
    """Yield the code of the reason, then those of the reasons among its arguments."""
    match reason:
        case Reason(code=code, args=args):
            yield code.value
            yield from _codes_of(tuple(args.values()))
        case tuple():
            for each in reason:
                yield from _codes_of(each)


@register.filter
def rule_name(rule: AlertRule) -> str:
    """Return the name of a rule. Only default names are translated, not those that people chose."""
    name = FORMER_NAMES.get(rule.name, rule.name)
    return _(name) if name in _given_names() else name


@cache
def _given_names() -> frozenset[str]:
    """Return the names that Waymark gives to rules: those of the default rules, and the titles of the types."""
    return DEFAULT_NAMES | {kind.title for kind in kinds().values()}


@register.filter
def rule_sentence(watch: Watch) -> str:
    return rendered(watch.kind.explain(watch.terms))


@register.filter
def first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


@register.filter
def tail_of_path(path: str) -> str:
    """Return the last part of a path, by which savepoints differ."""
    return path.rstrip("/").rsplit("/", maxsplit=1)[-1]


@register.simple_tag
def sparkline(values: Sequence[float], label: str) -> SafeString:
    """Draw a line through `values`, scaled to the highest value, with a dot at the last one."""
    if len(values) < 2:
        return mark_safe('<span class="nothing">–</span>')
    width, height, pad = 96, 24, 3
    top = max(values) or 1
    step = (width - 2 * pad) / (len(values) - 1)
    places = [(pad + step * i, height - pad - (height - 2 * pad) * v / top) for i, v in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return mark_safe(  # noqa: S308 - numbers, and the label is escaped
        f'<svg class="spark" {size} role="img" aria-label="{escape_plain(label)}">'
        f'<polyline points="{line}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2"/></svg>'
    )


@register.simple_tag
def cells(rows: Sequence[RankedJob]) -> SafeString:
    """Draw a box for each job in the colour of its level. Its title also has the age of the last completed checkpoint.

    The boxes are rendered in Python, because a template takes ten times as long for thousands of jobs.
    """
    signs = {Level.FAILING: "×", Level.OVERDUE: "!", Level.DEGRADED: "!", Level.UNKNOWN: "?"}
    words = {level.word: _(level.word) for level in Level}
    meanings = {fresh.word: _(fresh.meaning) for fresh in Freshness}
    shown = {level.word: signs.get(level, "") for level in Level}
    before, _zero, after = reverse("job", args=[0]).rpartition("0")
    parts = []
    for job, health in rows:
        level = health.level.word
        name = f"{escape_plain(job.name)}: {words[level]} ({meanings[health.freshness.word]})"
        parts.append(
            f'<span role="listitem"><a class="cell cell-{level}" tabindex="-1" aria-label="{name}" title="{name}"'
            f' href="{before}{job.pk}{after}">{shown[level]}</a></span>'
        )
    return mark_safe("".join(parts))  # noqa: S308 - the names are escaped


@register.simple_tag
def interval_bar(row: JobRow, most: int = 5) -> SafeString:
    """Draw how many checkpoint intervals the job has waited for its next checkpoint. The scale ends at `most`."""
    counts = row.health.freshness not in (Freshness.ENDED, Freshness.UNKNOWN)
    waited = min(row.health.intervals or 0, most) if counts else 0
    grid = "".join(f'<line x1="{i}" x2="{i}" y1="0" y2="8"/>' for i in range(1, most))
    return format_html(
        '<svg class="ages-bar" viewBox="0 0 {} 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="{}" height="8"/><rect class="bar-{}" width="{}" height="8"/>{}</svg>',
        *(most, most, row.health.level.word, f"{waited:.2f}"),
        mark_safe(grid),  # noqa: S308 - numbers only
    )


@register.simple_tag
def lane(of: Lane, length: int) -> SafeString:
    """Draw the phases of a subtask on a line of `length` ms. A phase that overlaps another is drawn below it."""
    bars = [
        format_html(
            '<rect class="phase-{}" x="{}" width="{}" y="{}" height="{}"/>',
            bar.phase,
            f"{1000 * bar.start / length:.2f}",
            f"{max(1.5, 1000 * bar.length / length):.2f}",
            *((10, 4) if bar.overlaps else (0, 9 if any(each.overlaps for each in of.bars) else 14)),
        )
        for bar in of.bars
    ]
    return format_html(
        '<svg class="lane" viewBox="0 0 1000 14" preserveAspectRatio="none" aria-hidden="true">{}</svg>',
        mark_safe("".join(bars)),  # noqa: S308 - each one went through format_html
    )


@register.simple_tag
def day_bars(counts: Sequence[int]) -> SafeString:
    """Draw a bar for the failures of each day, the oldest day first. A day without failures has a thin line."""
    top = max([*counts, 4])
    heights = [max(2.0, 22 * n / top) for n in counts]
    bars = "".join(
        f'<rect class="{"some" if n else "none"}" x="{i * 12}" y="{24 - height:.1f}" width="9" height="{height:.1f}"/>'
        for i, (n, height) in enumerate(zip(counts, heights, strict=True))
    )
    by_day = {"count": sum(counts), "days": ", ".join(map(str, counts))}
    label = _("%(count)s failed in 7 days, by day: %(days)s") % by_day
    return mark_safe(  # noqa: S308 - numbers only
        f'<svg class="bars" viewBox="0 0 81 24" width="81" height="24" role="img" aria-label="{label}">'
        f"<title>{label}</title>{bars}</svg>"
    )


@register.simple_tag(takes_context=True)
def query_with(context: RequestContext, **changes: Any) -> str:
    """Return the query string of the page with `changes`. An empty value removes its key."""
    query = context["request"].GET.copy()
    for key, value in changes.items():
        query.pop(key, None)
        if value not in ("", None):
            query[key] = str(value)
    text = query.urlencode()
    return f"?{text}" if text else "?"


@register.filter
def isolated(name: str) -> SafeString:
    """Render a name so that a right-to-left character in it does not turn around the sentence."""
    return format_html("<bdi>{}</bdi>", name)


@register.filter
def why_queued(run: Run) -> str:
    """Return why the run waits until its driver may start."""
    return launch_wait.sentence(run.launch_wait)


@register.filter
def queued_since(run: Run) -> datetime | None:
    since = run.launch_wait.get("since")
    return None if since is None else datetime.fromisoformat(since)


@register.filter
def objective_text(objective: Objective | ObjectiveBudget) -> str:
    """Return a sentence without an end, such as `99 % of the checkpoints in less than 30 s over 30 days`."""
    text = ngettext(
        "%(percent)s %% of the checkpoints in less than %(limit)s over %(days)s day",
        "%(percent)s %% of the checkpoints in less than %(limit)s over %(days)s days",
        objective.days,
    )
    return text % {
        "percent": f"{objective.percent:g}",
        "limit": span_ms_text(objective.limit_ms),
        "days": objective.days,
    }


@register.filter
def budget_left(budget: ObjectiveBudget) -> str:
    """Return what is left of the budget as a percentage, or a dash if the job has no checkpoints."""
    return "–" if budget.left_percent is None else f"{budget.left_percent:.0f} %".replace("-", "−")


@register.filter
def budget_tone(budget: ObjectiveBudget) -> str:
    """Return the word of the level in whose colour the budget is shown, or "" if enough of it is left."""
    if budget.left_percent is None or budget.left_percent > LITTLE_LEFT:
        return ""
    return Level.DEGRADED.word if budget.left_percent > 0 else Level.FAILING.word
