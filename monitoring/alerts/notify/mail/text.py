"""A notification as mail, plain and simple HTML: the sentence first, then where to look."""

from __future__ import annotations

from django.utils.html import format_html

from monitoring.alerts.notify.message import Message

_HTML = """<!doctype html>
<html><body style="font-family:system-ui,sans-serif;font-size:15px;line-height:1.5;color:#1c2024;max-width:40em">
<p style="font-size:17px"><strong>{sentence}</strong></p>
<p>Job <a href="{job_url}">{job}</a> on cluster {cluster}.<br>Incident {event}, {severity}, {at}.</p>
<p><a href="{incident_url}">Open the incident</a></p>
</body></html>
"""


def plain_body(message: Message) -> str:
    return (
        f"{message.sentence}\n\n"
        f"Job:      {message.job} on cluster {message.cluster}\n"
        f"Incident: {message.event}, {message.severity}, {_at(message)}\n\n"
        f"The incident: {message.incident_url}\n"
        f"The job:      {message.job_url}\n"
    )


def html_body(message: Message) -> str:
    return format_html(
        _HTML,
        sentence=message.sentence,
        job=message.job,
        job_url=message.job_url,
        cluster=message.cluster,
        event=message.event,
        severity=message.severity,
        at=_at(message),
        incident_url=message.incident_url,
    )


def _at(message: Message) -> str:
    return f"{message.at:%Y-%m-%d %H:%M:%S %Z}"
