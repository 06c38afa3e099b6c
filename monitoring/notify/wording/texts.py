"""Render the subject and body of a message for a channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string

from monitoring.models import Channel, Language
from monitoring.notify.message import Item, Message
from monitoring.notify.shift import Shift
from monitoring.notify.wording.sandbox import BadTemplate, compile_template, render
from monitoring.notify.wording.shifts import values_of_shift
from monitoring.notify.wording.words import event_label, kind_label, severity_label

SUBJECT_LENGTH = 180


@dataclass(frozen=True)
class Text:
    """A rendered message. `html` is empty if the channel has its own body template, which is plain text."""

    subject: str
    body: str
    html: str


def text_of(channel: Channel, message: Message) -> Text:
    """Render the message. If the channel's own template fails, use Waymark's template, so that the message is sent.

    Summaries always have Waymark's templates.
    """
    language = Language(channel.language)
    if message.summary is not None:
        return _summary(message.summary, channel, subject_of(message, language))
    context = _context(message, language)
    subject = _own(channel.subject_template, message, language) or subject_of(message, language)
    body = _own(channel.body_template, message, language)
    html = "" if body else _stock(language, "body.html", context)
    return Text(_in_one_line(subject), body or _stock(language, "body.txt", context), html)


def _summary(shift: Shift, channel: Channel, subject: str) -> Text:
    values, language = values_of_shift(shift, channel), Language(channel.language)
    return Text(subject, _stock(language, "shift.txt", values), _stock(language, "shift.html", values))


def subject_of(message: Message, language: Language) -> str:
    """Return the subject of Waymark's template. It depends only on the lead and the number of notifications."""
    if message.summary is not None:
        return _in_one_line(_stock(language, "shift_subject.txt", {"sentence": message.lead.text(language.value)}))
    return _in_one_line(_stock(language, "subject.txt", _context(message, language)))


def _in_one_line(subject: str) -> str:
    return " ".join(subject.split())[:SUBJECT_LENGTH]


def values_of(message: Message, language: Language) -> dict[str, object]:
    """Return the values for a channel's own template."""
    return {
        **_values(message.lead, language),
        "count": message.total,
        "unlisted": message.unlisted,
        "is_digest": message.is_digest,
        "incidents": [_values(each, language) for each in message.items],
    }


def _own(source: str, message: Message, language: Language) -> str:
    if not source:
        return ""
    try:
        return render(compile_template(source), values_of(message, language))
    except (BadTemplate, TypeError, ValueError, KeyError, AttributeError, IndexError):
        return ""


def _stock(language: Language, name: str, context: Mapping[str, Any]) -> str:
    """Render Waymark's template in the layout of the language, or in the English one if it has none."""
    layouts = [f"notify/{each.value}/{name}" for each in (language, Language.ENGLISH)]
    return render_to_string(layouts, dict(context)).strip() + "\n"


def _context(message: Message, language: Language) -> dict[str, Any]:
    lead = _values(message.lead, language)
    return {"message": message, "lead": lead, "items": [_values(each, language) for each in message.items]}


def _values(item: Item, language: Language) -> dict[str, object]:
    return {
        "event": event_label(item.event, language),
        "severity": severity_label(item.severity, language),
        "kind": kind_label(item.kind, language),
        "job": item.job,
        "cluster": item.cluster,
        "sentence": item.text(language.value),
        "named_sentence": item.named_text(language.value),
        "cause": item.cause_text(language.value),
        "runbook": item.runbook,
        "at": f"{item.at:%Y-%m-%d %H:%M:%S %Z}",
        "incident_url": item.incident_url,
        "job_url": item.job_url,
    }
