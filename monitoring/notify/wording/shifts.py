"""The values of a shift summary in the language and the time zone of a channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.utils.translation import gettext, override

from monitoring.models import Channel, Language
from monitoring.notify.message import one_line
from monitoring.notify.shift import Shift, hours_of
from monitoring.notify.wording.words import severity_label
from monitoring.reasons.reason import Reason, render
from monitoring.units import MINUTE, length_text, time_text


def values_of_shift(shift: Shift, channel: Channel) -> dict[str, Any]:
    """Return the values for the templates. Texts have no line breaks, which could forge lines of the message."""
    language, zone = Language(channel.language), ZoneInfo(channel.summary_time_zone)
    with override(language.value):
        return {
            "shift": shift,
            "hours": hours_of(shift),
            "until": time_text(shift.until_at.astimezone(zone), MINUTE),
            "blind": length_text(shift.blind_s),
            "url": f"{str(settings.PUBLIC_URL).rstrip('/')}/shift/",
            "incidents": list(_incidents(shift, language)),
            "restarts": list(_restarts(shift, zone, language)),
            "savepoints": [
                {"job": one_line(each.job), "at": _clock(each.requested_at, zone), "why": _text(each.failure, language)}
                for each in shift.savepoints
            ],
            "outages": [
                {
                    "cluster": one_line(each.cluster),
                    "kind": gettext(each.kind_label),
                    "at": _clock(each.began_at, zone),
                    "lasted": length_text(each.seconds),
                }
                for each in shift.outages
            ],
            "jobs": [{"job": one_line(each.job), "failed": each.failed} for each in shift.jobs],
        }


def _incidents(shift: Shift, language: Language) -> Iterator[Mapping[str, Any]]:
    site = str(settings.PUBLIC_URL).rstrip("/")
    for each in shift.incidents:
        text, subject = _text(each.sentence, language), one_line(each.subject)
        yield {
            "severity": severity_label(each.severity, language),
            "state": gettext(each.state_label).lower(),
            "sentence": text if subject in text else f"{subject}: {text}",
            "url": f"{site}/incidents/{each.id}/",
        }


def _restarts(shift: Shift, zone: ZoneInfo, language: Language) -> Iterator[Mapping[str, Any]]:
    for each in shift.restarts:
        yield {
            "job": one_line(each.job),
            "epoch": each.epoch,
            "at": _clock(each.created_at, zone),
            "state": gettext(each.state_label).lower(),
            "error": _text(each.error, language),
        }


def _clock(at: datetime, zone: ZoneInfo) -> str:
    return time_text(at.astimezone(zone), MINUTE)


def _text(reason: Reason | str, language: Language) -> str:
    return str(one_line(render(reason, language.value)))
