"""Render the subject and body of a message for a channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from django.utils.translation import get_language, override, pgettext

from monitoring.models import Channel
from monitoring.notify.message import Item, Message
from monitoring.notify.wording.sandbox import BadTemplate, compile_template, render
from monitoring.notify.wording.shifts import values_of_shift
from monitoring.notify.wording.words import event_label, kind_label, severity_label
from monitoring.reasons.reason import SOURCE

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
    with override(channel.language):
        values = values_of(message)
        if message.summary is not None:
            shift = values_of_shift(message.summary, channel)
            return Text(_in_one_line(_subject(message)), _stock("shift.txt", shift), _stock("shift.html", shift))
        subject = _own(channel.subject_template, values) or _subject(message)
        body = _own(channel.body_template, values)
        html = "" if body else _stock("body.html", values)
        return Text(_in_one_line(subject), body or _stock("body.txt", values), html)


def subject_of(message: Message, language: str) -> str:
    """Return Waymark's subject. It depends only on the lead and the number of notifications."""
    with override(language):
        return _in_one_line(_subject(message))


def _in_one_line(subject: str) -> str:
    return " ".join(subject.split())[:SUBJECT_LENGTH]


def values_of(message: Message) -> dict[str, Any]:
    """Return the values for Waymark's and for a channel's own template, in the active language."""
    return {
        **_values(message.lead),
        "count": message.total,
        "unlisted": message.unlisted,
        "is_digest": message.is_digest,
        "incidents": [_values(each) for each in message.items],
    }


def _own(source: str, values: Mapping[str, Any]) -> str:
    if not source:
        return ""
    try:
        return render(compile_template(source), values)
    except (BadTemplate, TypeError, ValueError, KeyError, AttributeError, IndexError):
        return ""


def _stock(name: str, values: Mapping[str, Any]) -> str:
    return render_to_string(f"notify/{name}", dict(values)).strip() + "\n"


def _subject(message: Message) -> str:
    """Return the subject. A translation may use other values than the English text, as in `_values`."""
    values = values_of(message)
    label = pgettext("message", "digest") if message.is_digest else values["event"]
    if message.summary is not None:
        # xgettext:no-python-brace-format
        form = pgettext("message", "[summary] {sentence}")
    elif values["count"] == 1:
        # xgettext:no-python-brace-format
        form = pgettext("message", "[{label}] {named_sentence}")
    elif values["is_digest"]:
        # xgettext:no-python-brace-format
        form = pgettext("message", "[{label}] {count} notifications, beginning with: {named_sentence}")
    elif values["cluster"]:
        # xgettext:no-python-brace-format
        form = pgettext("message", "[{label}] {count} incidents on cluster {cluster}: {named_sentence}")
    else:
        # xgettext:no-python-brace-format
        form = pgettext("message", "[{label}] {count} incidents: {named_sentence}")
    return form.format(**values, label=label)


def _values(item: Item) -> dict[str, Any]:
    language = get_language() or SOURCE
    values = {
        "event": event_label(item.event),
        "severity": severity_label(item.severity),
        "kind": kind_label(item.kind),
        "job": item.job,
        "cluster": item.cluster,
        "sentence": item.text(language),
        "named_sentence": item.named_text(language),
        "cause": item.cause_text(language),
        "runbook": item.runbook,
        "at": f"{item.at:%Y-%m-%d %H:%M:%S %Z}",
        "incident_url": item.incident_url,
        "job_url": item.job_url,
    }
    # Languages choose the values in these texts.
    # xgettext:no-python-brace-format
    title = pgettext("message", "{sentence}")
    # xgettext:no-python-brace-format
    status = pgettext("message", "{event}, {severity}, {at}")
    return values | {"title": title.format(**values), "status": status.format(**values)}
