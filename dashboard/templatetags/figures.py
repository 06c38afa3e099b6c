"""Figures, times, marks and small drawings as the templates write them."""

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

from dashboard import launch_wait, units
from dashboard.audit_texts import action_text, reason_text, target_text
from dashboard.documentation import explained_codes
from dashboard.health import Freshness, Level
from dashboard.language import rendered, schedule_text
from dashboard.queries.activity import without_name
from dashboard.queries.fleet import JobRow
from dashboard.queries.waterfall import Lane
from monitoring.alerts.defaults import DEFAULT_NAMES
from monitoring.alerts.failure_reason import checkpoint_failure
from monitoring.alerts.walk import Watch
from monitoring.masking import shown_launch
from monitoring.models import (
    AlertRule,
    AttemptState,
    Channel,
    ChannelKind,
    CheckpointStatus,
    DeliveryState,
    IncidentState,
    Job,
    NotificationState,
    Run,
    RunState,
    Savepoint,
    SavepointState,
    Verdict,
)
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import Reason, from_json
from monitoring.savepoints.checking import can_be_checked
from monitoring.savepoints.keeping import policy_of
from monitoring.savepoints.schedule import timetable_of

register = template.Library()


def _nothing() -> SafeString:
    return _dash(_("not known"))


@cache
def _dash(label: str) -> SafeString:
    return format_html('<span class="nothing" aria-label="{}">–</span>', label)


# The tone of a word: its colour is only an echo of it.
_TONES: dict[str, str] = {
    **dict.fromkeys((RunState.RUNNING, RunState.FINISHED, CheckpointStatus.COMPLETED), "good"),
    **dict.fromkeys((RunState.FAILED, RunState.FAILING, RunState.LOST, CheckpointStatus.FAILED), "bad"),
    **dict.fromkeys((RunState.RESTARTING, RunState.SUSPENDED, RunState.CANCELLING, RunState.RECONCILING), "warn"),
    **dict.fromkeys((RunState.INITIALIZING, RunState.CREATED, CheckpointStatus.IN_PROGRESS), "busy"),
    **dict.fromkeys((SavepointState.COMPLETED, AttemptState.SUCCEEDED, DeliveryState.SENT, "done"), "good"),
    **dict.fromkeys((SavepointState.FAILED, DeliveryState.DEAD, IncidentState.OPEN, "critical", "failing"), "bad"),
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
    """A label or a word that the code names in English, in the page's language."""
    return _(str(text)) if text else ""


@register.filter
def duration(milliseconds: float | None) -> str:
    return units.duration_text(milliseconds) if milliseconds is not None else _nothing()


@register.filter(name="bytes")
def bytes_(size: float | None) -> str:
    return units.bytes_text(size) if size is not None else _nothing()


@register.filter
def figure(value: float | None, unit: str) -> str:
    """`value` in `unit`, which is "ms" or "bytes"."""
    return duration(value) if unit == "ms" else bytes_(value)


@register.filter
def span(seconds: float | None) -> str:
    return units.length_text(units.span_text(seconds)) if seconds is not None else _nothing()


@register.filter
def savepoint_retention(job: Job) -> str:
    """`keeps the newest 5 and those of the last 7 d`."""
    return rendered(policy_of(job).reason)


@register.filter
def savepoint_schedule(job: Job) -> str:
    """`every 1 h`, `at 03:00 every day (Europe/Berlin)`."""
    return schedule_text(timetable_of(job))


@register.filter
def lag(seconds: float | None) -> str:
    """How long something is late: `6 s`, `2 min 10 s`."""
    return _nothing() if seconds is None else units.age_text(timedelta(seconds=seconds))


@register.filter
def span_ms(milliseconds: float | None) -> str:
    """A configured time in ms, `10 s`; Flink's largest number means that it is off."""
    if milliseconds is None:
        return _nothing()
    return _("off") if milliseconds > 2**62 else units.length_text(units.span_text(milliseconds / 1000))


@register.filter
def dig(mapping: dict[str, Any], key: str) -> Any:
    return mapping.get(key)


def _exact(at: datetime) -> str:
    return timezone.localtime(at).strftime("%Y-%m-%d %H:%M:%S %Z")


def _time(at: datetime | None, kind: str, text: str) -> SafeString:
    if at is None:
        return _nothing()
    shown = f'<time datetime="{at.isoformat()}" data-{kind} title="{_exact(at)}">{escape_plain(text)}</time>'
    return mark_safe(shown)  # noqa: S308 - the text is escaped, all else is a time


@register.filter
def ago(at: datetime | None) -> SafeString:
    """`6 s ago`, kept true in the browser, the exact time on hover."""
    if at is None:
        return _nothing()
    return _time(at, "ago", _("%(age)s ago") % {"age": units.age_text(timezone.now() - at)})


@register.filter
def age(at: datetime | None) -> SafeString:
    """`6 s`: for columns that say in their heading that it is an age."""
    return _time(at, "age", units.age_text(timezone.now() - at)) if at else _nothing()


@register.filter
def until(at: datetime | None) -> SafeString:
    """`in 22 min`, or `due now` when it is due."""
    if at is None:
        return _nothing()
    left = at - timezone.now()
    return _time(at, "until", _("in %(age)s") % {"age": units.age_text(left)} if left > timedelta(0) else _("due now"))


@register.filter
def clock(at: datetime | None) -> SafeString:
    """`14:02:36` today, with the date on other days."""
    if at is None:
        return _nothing()
    local = timezone.localtime(at)
    same_day = local.date() == timezone.localtime().date()
    return _time(at, "clock", local.strftime("%H:%M:%S" if same_day else _("%b %-d, %H:%M:%S")))


@register.filter
def iso_clock(text: str) -> SafeString:
    """The same for a time that is stored as ISO text, as in logs of deliveries."""
    try:
        return clock(datetime.fromisoformat(text))
    except (TypeError, ValueError):
        return format_html("{}", text)


@register.filter
def channel_target(channel: Channel) -> str:
    """Where a channel leads, as far as that is no secret."""
    match channel.kind:
        case ChannelKind.MAIL:
            return ", ".join(channel.settings.get("to", []))
        case ChannelKind.WEBHOOK:
            return urlsplit(str(channel.settings.get("url", ""))).hostname or ""
        case _:
            return str(channel.settings.get("service", ""))


@register.filter
def from_ms(milliseconds: int | None) -> datetime | None:
    """A moment that is stored as epoch milliseconds."""
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


@register.filter
def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@register.filter
def then(text: str, what: object) -> str:
    """`text` with `what` after it: ids of parts of a page."""
    return f"{text}{what}"


@register.filter
def words(key: str) -> str:
    """A key of evidence, `checkpoint_ids`, as words."""
    return _(key.replace("_", " "))


@register.filter
def fact(key: str) -> str:
    """A key of the facts of a decision: as it is stored, in other languages as words."""
    return words(key) if units.is_chinese() else key


@register.filter
def found(value: Any) -> str:
    """A value of evidence or of a fact as people write it."""
    if isinstance(value, bool) and units.is_chinese():
        return _("yes") if value else _("no")
    return rendered(from_json(value) or plain(value))


@register.filter
def plain(value: Any) -> str:
    """A stored value as people write it."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {plain(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return "–" if value is None or value == "" else str(value)


# Keys of /checkpoints/config that hold milliseconds.
_MILLISECONDS = ("interval", "timeout", "min_pause", "aligned_checkpoint_timeout")


@register.filter
def setting(value: Any, key: str) -> str:
    """A configured value as people read it."""
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
    return units.duration_text((end - start).total_seconds() * 1000)


@register.filter
def long(start: datetime, end: datetime) -> str:
    """As `age` tells how long something lasts so far: `1 h 05 min`."""
    return units.age_text(end - start)


@register.simple_tag
def badge(word: str, label: str = "", *, tone: str = "") -> SafeString:
    """A state's word with a dot. `tone`: good, warn, bad, busy or calm; by default the one of the word."""
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
    """Nobody looked at its files, and nobody can before a job is started from it."""
    if savepoint.state != SavepointState.COMPLETED or savepoint.checked_at is not None:
        return False
    return bool(savepoint.path) and not can_be_checked(savepoint.job, savepoint.path)


register.filter("action_text", action_text)
register.filter("checkpoint_failure", checkpoint_failure)
register.filter("reason_text", reason_text)
register.filter("target_text", target_text)
register.filter("without_name", without_name)
register.filter("rendered", rendered)
register.filter("length_text", units.length_text)


@register.filter
def without_values(details: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The items of an object, without the codes and arguments of its texts."""
    return [(key, value) for key, value in details.items() if not key.endswith("_value")]


@register.filter
def reason(row: Model | Mapping[str, Any], column: str) -> str:
    """What the column of a row, or the key of a stored object, says in the page's language."""
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
    """The name of a rule. One that people wrote is not translated."""
    return _(rule.name) if rule.name in DEFAULT_NAMES else rule.name


@register.filter
def rule_sentence(watch: Watch) -> str:
    return rendered(watch.kind.explain(watch.terms))


@register.filter
def first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


@register.filter
def tail_of_path(path: str) -> str:
    """The last part: the one that tells two savepoints apart."""
    return path.rstrip("/").rsplit("/", maxsplit=1)[-1]


@register.simple_tag
def sparkline(values: Sequence[float], label: str) -> SafeString:
    """A line of `values`, scaled to its own highest, the last one marked."""
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
def cells(rows: Sequence[JobRow]) -> SafeString:
    """A box for each job by the freshness of its last completed checkpoint. There may be thousands: put together here,
    a template takes ten times as long."""
    signs = {Freshness.OVERDUE: "!", Freshness.LATE: "!", Freshness.UNKNOWN: "?"}
    meanings = {fresh: _(fresh.meaning) for fresh in Freshness}
    before, _zero, after = reverse("job", args=[0]).rpartition("0")
    parts = []
    for row in rows:
        fresh = row.health.freshness
        name = f"{escape_plain(row.facts.name)}: {meanings[fresh]}"
        parts.append(
            f'<span role="listitem"><a class="cell cell-{fresh.word}" tabindex="-1" aria-label="{name}" title="{name}"'
            f' href="{before}{row.facts.pk}{after}">{signs.get(fresh, "")}</a></span>'
        )
    return mark_safe("".join(parts))  # noqa: S308 - the names are escaped


@register.simple_tag
def interval_bar(row: JobRow, most: int = 5) -> SafeString:
    """How many of its own intervals a job has waited, on a scale that ends where it is overdue."""
    told = row.health.freshness not in (Freshness.ENDED, Freshness.UNKNOWN)
    waited = min(row.health.intervals or 0, most) if told else 0
    grid = "".join(f'<line x1="{i}" x2="{i}" y1="0" y2="8"/>' for i in range(1, most))
    return format_html(
        '<svg class="ages-bar" viewBox="0 0 {} 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="{}" height="8"/><rect class="bar-{}" width="{}" height="8"/>{}</svg>',
        *(most, most, row.health.freshness.word, f"{waited:.2f}"),
        mark_safe(grid),  # noqa: S308 - numbers only
    )


@register.simple_tag
def lane(of: Lane, length: int) -> SafeString:
    """A subtask's phases on one line, `length` ms wide; a phase beside another one lies under it."""
    bars = [
        format_html(
            '<rect class="phase-{}" x="{}" width="{}" y="{}" height="{}"/>',
            bar.phase,
            f"{1000 * bar.start / length:.2f}",
            f"{max(1.5, 1000 * bar.length / length):.2f}",
            *((10, 4) if bar.beside else (0, 9 if any(each.beside for each in of.bars) else 14)),
        )
        for bar in of.bars
    ]
    return format_html(
        '<svg class="lane" viewBox="0 0 1000 14" preserveAspectRatio="none" aria-hidden="true">{}</svg>',
        mark_safe("".join(bars)),  # noqa: S308 - each one went through format_html
    )


@register.simple_tag
def day_bars(counts: Sequence[int]) -> SafeString:
    """One bar a day, oldest first; days without any keep a thin base line."""
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
    """This page's query string with `changes`; an empty value drops its key."""
    query = context["request"].GET.copy()
    for key, value in changes.items():
        query.pop(key, None)
        if value not in ("", None):
            query[key] = str(value)
    text = query.urlencode()
    return f"?{text}" if text else "?"


@register.filter
def is_long_ago(at: datetime | None, seconds: int) -> bool:
    return at is not None and timezone.now() - at > timedelta(seconds=seconds)


@register.filter
def why_queued(run: Run) -> str:
    """Return why the run waits until its driver may start."""
    return launch_wait.sentence(run.launch_wait)


@register.filter
def queued_since(run: Run) -> datetime | None:
    since = run.launch_wait.get("since")
    return None if since is None else datetime.fromisoformat(since)
