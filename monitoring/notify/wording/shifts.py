"""The texts of a shift summary in the active language and the time zone of a channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.utils.translation import get_language, gettext, pgettext

from monitoring.models import Channel
from monitoring.notify.message import one_line
from monitoring.notify.shift import Shift, hours_of
from monitoring.notify.wording.words import severity_label
from monitoring.reasons.reason import SOURCE, Reason, render
from monitoring.units import MINUTE, length_text, time_text


@dataclass(frozen=True)
class Line:
    text: str
    url: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    lines: tuple[Line, ...]


def values_of_shift(shift: Shift, channel: Channel) -> dict[str, Any]:
    """Return the values for the templates. Texts have no line breaks, which could forge lines of the message."""
    zone = ZoneInfo(channel.summary_time_zone)
    sections = (
        _incidents(shift),
        _restarts(shift, zone),
        _savepoints(shift, zone),
        _outages(shift, zone),
        _jobs(shift),
    )
    return {
        "hours": hours_of(shift),
        "until": _clock(shift.until_at, zone),
        "url": f"{_site()}/shift/",
        "sections": sections,
    }


def _incidents(shift: Shift) -> Section:
    def lines() -> Iterator[Line]:
        for each in shift.incidents:
            text, subject = _text(each.sentence), one_line(each.subject)
            line = pgettext("message", "{state}, {severity}: {sentence}").format(
                state=gettext(each.state_label).lower(),
                severity=severity_label(each.severity),
                sentence=text if subject in text else f"{subject}: {text}",
            )
            yield Line(line, f"{_site()}/incidents/{each.id}/")

    form = pgettext("message", "Incidents: {opened} opened, {resolved} resolved, {unresolved} unresolved")
    title = form.format(opened=shift.opened, resolved=shift.resolved, unresolved=shift.unresolved)
    return Section(title, tuple(lines()))


def _restarts(shift: Shift, zone: ZoneInfo) -> Section:
    def lines() -> Iterator[Line]:
        for each in shift.restarts:
            line = pgettext("message", "{at} {job}, restart {epoch}: {state}").format(
                at=_clock(each.created_at, zone),
                job=one_line(each.job),
                epoch=each.epoch,
                state=gettext(each.state_label).lower(),
            )
            error = _text(each.error)
            yield Line(f"{line} ({error})" if error else line)

    form = pgettext("message", "Restarts: {total}, of which {failed} failed")
    title = form.format(total=shift.restarts_in_total, failed=shift.restarts_failed)
    return Section(title, tuple(lines()))


def _savepoints(shift: Shift, zone: ZoneInfo) -> Section:
    def lines() -> Iterator[Line]:
        for each in shift.savepoints:
            line, why = f"{_clock(each.requested_at, zone)} {one_line(each.job)}", _text(each.failure)
            yield Line(f"{line}: {why}" if why else line)

    title = pgettext("message", "Failed savepoints: {count}").format(count=shift.savepoints_failed)
    return Section(title, tuple(lines()))


def _outages(shift: Shift, zone: ZoneInfo) -> Section:
    def lines() -> Iterator[Line]:
        for each in shift.outages:
            form = pgettext("message", "{at} {cluster}, {length}: {kind}")
            values = {
                "at": _clock(each.began_at, zone),
                "cluster": one_line(each.cluster),
                "length": length_text(each.seconds),
                "kind": gettext(each.kind_label),
            }
            yield Line(form.format(**values))

    if not shift.blind_s:
        return Section(pgettext("message", "Waymark polled every cluster without a break."), tuple(lines()))
    form = pgettext("message", "Longest time without polls: {length}")
    return Section(form.format(length=length_text(shift.blind_s)), tuple(lines()))


def _jobs(shift: Shift) -> Section:
    if not shift.jobs:
        return Section(pgettext("message", "No checkpoint failed."), ())
    lines = tuple(Line(f"{one_line(each.job)}: {each.failed}") for each in shift.jobs)
    return Section(pgettext("message", "Jobs with the most failed checkpoints:"), lines)


def _site() -> str:
    return str(settings.PUBLIC_URL).rstrip("/")


def _clock(at: datetime, zone: ZoneInfo) -> str:
    return time_text(at.astimezone(zone), MINUTE)


def _text(reason: Reason | str) -> str:
    return str(one_line(render(reason, get_language() or SOURCE)))
