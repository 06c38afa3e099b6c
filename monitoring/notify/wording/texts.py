"""Render the subject and body of a message for a channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.template.loader import render_to_string
from django.utils.translation import get_language, override, pgettext

from monitoring.models import Channel, NotificationReason
from monitoring.notify.message import Item, Message
from monitoring.notify.shift import Shift, hours_of
from monitoring.notify.wording.sandbox import BadTemplate, compile_template, render
from monitoring.notify.wording.shifts import values_of_shift
from monitoring.notify.wording.words import event_label, kind_label, severity_label
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.reason import SOURCE, Reason

# Lists of mails and notifications on phones show no more. A channel's own template may be longer.
SUBJECT_LENGTH = 70
OWN_SUBJECT_LENGTH = 180


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
            return Text(_subject(message), _stock("shift.txt", shift), _stock("shift.html", shift))
        subject = _in_one_line(_own(channel.subject_template, values))[:OWN_SUBJECT_LENGTH] or _subject(message)
        body = _own(channel.body_template, values)
        html = "" if body else _stock("body.html", values)
        return Text(subject, body or _stock("body.txt", values), html)


def subject_of(message: Message, language: str) -> str:
    """Return Waymark's subject. It depends only on the lead and the number of notifications."""
    with override(language):
        return _subject(message)


def _in_one_line(subject: str) -> str:
    return " ".join(subject.split())


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
    """Return the subject: the severity or the end of the problem first, then the sentence without its full stop.

    A translation may use other values than the English text, as in `_values`.
    """
    language, lead = get_language() or SOURCE, _without_event(message.lead)
    values: dict[str, Any] = _values(lead) | {
        "label": _label(lead),
        "count": message.total,
        "sentence": lead.text(language).rstrip(".。"),
        "named_sentence": lead.named_text(language).rstrip(".。"),
    }
    if message.summary is not None:
        form = pgettext(
            "message",
            "[summary] Unresolved: {unresolved}, opened: {opened}, failed restarts: {failed}, last {hours} h",
        )
        values = _counts_of(message.summary)
    elif lead.event == "test":
        # xgettext:no-python-brace-format
        form = pgettext("message", "[{label}] {sentence}")
    elif message.is_single:
        # xgettext:no-python-brace-format
        form = pgettext("message", "[{label}] {named_sentence}")
    elif message.is_digest:
        # xgettext:no-python-brace-format
        form = pgettext("message", "[digest] {count} notifications, first: {named_sentence}")
    elif lead.cluster:
        # xgettext:no-python-brace-format
        form = pgettext("message", "[{label}] {count} incidents on cluster {cluster}: {named_sentence}")
    else:
        # xgettext:no-python-brace-format
        form = pgettext("message", "[{label}] {count} incidents: {named_sentence}")
    subject = _in_one_line(form.format(**values))
    return subject if len(subject) <= SUBJECT_LENGTH else f"{subject[: SUBJECT_LENGTH - 1].rstrip()}…"


def _counts_of(shift: Shift) -> dict[str, int]:
    counts = {"opened": shift.opened, "unresolved": shift.unresolved, "failed": shift.restarts_failed}
    return {"hours": hours_of(shift), **counts}


def _without_event(item: Item) -> Item:
    """Return the item with the finding alone: the label of a subject says already that it is over."""
    match item.sentence:
        case Reason(AlertReason.RESOLVED | AlertReason.RESOLVED_BY, {"why": finding}):
            return replace(item, sentence=finding)
        case Reason(AlertReason.WOKEN, {"finding": finding}):
            return replace(item, sentence=finding)
    return item


def _label(lead: Item) -> str:
    """Return how bad the problem is, or that it is over. A repeated message also gives its reason."""
    if lead.event in (NotificationReason.RESOLVED, "test"):
        return event_label(lead.event)
    severity = severity_label(lead.severity)
    if lead.event == NotificationReason.OPENED:
        return severity
    return pgettext("message", "{severity}, {event}").format(severity=severity, event=event_label(lead.event))


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
