"""What the audit log holds, as people say it. The log's own keys stay the record; these are its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dashboard.units import span_text
from monitoring.models import AuditEntry

_FIELDS = {
    "auto_restart": "automatic restart",
    "allow_empty_start": "empty start",
    "automation_note": "note",
    "automation_paused": "automation paused",
    "pause_lasts": "paused for",
    "check_every_s": "checked every",
    "poll_interval_s": "asked every",
    "request_limit_s": "waits at most",
    "requests_at_once": "requests at once",
    "rest_url": "address",
    "managed_elsewhere": "managed by",
    "max_restarts_per_day": "restarts a day at most",
    "max_restarts_per_hour": "restarts an hour at most",
    "oldest_state_s": "oldest state",
    "restart_on_lost": "restarted when lost",
    "restore_from": "restored from",
    "savepoint_schedule": "savepoints",
    "savepoint_time_zone": "time zone",
    "savepoints_kept": "the newest",
    "savepoints_kept_s": "those of the last",
    "window_s": "window",
}

Details = dict[str, Any]
_DEEDS: dict[str, str | Callable[[Details], str]] = {
    "cluster.add": "added the cluster",
    "cluster.archive": "removed the cluster; the history of its jobs stays",
    "cluster.change": lambda details: f"changed how it is asked: {_changes(details.get('now'))}",
    "cluster.pause": "stopped watching the cluster",
    "cluster.remove": "removed the cluster",
    "cluster.resume": "had the cluster watched again",
    "cluster.same": lambda details: f"confirmed that it is the same cluster, rebuilt: now {details.get('now', '')}",
    "incident.acknowledge": "acknowledged the incident",
    "channel.add": "added the channel",
    "channel.change": lambda details: f"changed the channel: {', '.join(_names(details.get('now')))}",
    "channel.test": "tested the channel",
    "delivery.retry": "had the message tried again",
    "incident.snooze": "snoozed the incident",
    "maintenance.end": "ended the maintenance window",
    "maintenance.plan": "planned a maintenance window",
    "incident.resolve": "resolved the incident",
    "job.automation": lambda details: f"changed what Waymark does: {_changes(details.get('now'))}",
    "job.launch": lambda details: f"changed how it is started (version {details.get('version')})",
    "automation.pause": "paused the automation",
    "automation.resume": "let the automation go on",
    "restart.breaker-close": "closed the breaker",
    "restart.breaker-open": "opened the breaker",
    "restart.cancel": "canceled the restart",
    "restart.canceled": "canceled the restart",
    "restart.decide": "decided to restart",
    "restart.failed": "could not restart it",
    "restart.needs-person": "asks for a person",
    "restart.succeeded": "restarted it",
    "rule.import": lambda details: f"imported rules and channels: {details.get('changes', 'nothing')}",
    "rule.remove": "removed the rule",
    "rule.change": lambda details: f"changed the rule: {_changes(_without(details, 'before'))}",
    "savepoint.dispose": "let a savepoint go",
    "savepoint.keep": lambda details: f"kept note of a savepoint: {_changes(details.get('now'))}",
    "savepoint.request": "asked for a savepoint",
    "savepoint.retention": lambda details: f"changed which savepoints stay: {_changes(details.get('now'))}",
    "savepoint.schedule": lambda details: f"set savepoints {_schedule(details)}",
    "savepoint.stop": "asked to stop it with a savepoint",
    "state.read": lambda details: f"looked into the state of {details.get('snapshot', 'a snapshot')}",
    "secrets.rekey": "sealed the stored secrets anew",
    "user.activate": "let the account log in again",
    "user.change": lambda details: f"changed the account: {_changes(details.get('now'))}",
    "user.create": lambda details: f"made the account: {_changes(details.get('now'))}",
    "user.deactivate": "deactivated the account",
    "user.grant": lambda details: f"granted {_grant(details.get('now'))}",
    "user.log-in": "logged in",
    "user.log-in-limited": "stopped further log-ins for a while",
    "user.log-out": "ended all sessions",
    "user.password": "set a new password",
    "user.ungrant": lambda details: f"took away {_grant(details.get('was'))}",
    "token.make": lambda details: f"made a token that may {'write' if details.get('may_write') else 'read'}",
    "token.revoke": "revoked the token",
}


def deed_of(entry: AuditEntry) -> str:
    """What the actor did, so that "<actor> <deed>" reads as a sentence. A key without words is given as it is."""
    words = _DEEDS.get(entry.action)
    if words is None:
        return entry.action
    return words if isinstance(words, str) else words(entry.details)


def subject_of(entry: AuditEntry) -> str:
    """The job's or the cluster's name alone where one is meant."""
    return entry.target.removeprefix("job ").removeprefix("cluster ")


def reason_of(entry: AuditEntry) -> str:
    return "scheduled" if entry.reason == "schedule" else entry.reason


def _schedule(details: Details) -> str:
    if "schedule" in details:
        return str(details["schedule"]).replace("none", "off")
    seconds = details.get("interval_s")  # as entries of the first release say it
    return f"every {span_text(seconds)}" if isinstance(seconds, int | float) and seconds else "off"


def _without(details: Details, name: str) -> Details:
    return {key: value for key, value in details.items() if key != name}


def _grant(granted: object) -> str:
    return f"{granted.get('role')} on {granted.get('on')}" if isinstance(granted, dict) else ""


def _names(changed: object) -> list[str]:
    named = changed if isinstance(changed, dict) else {}
    return [_FIELDS.get(name, name.replace("_", " ")) for name in named] or ["nothing"]


def _changes(changed: object) -> str:
    if not isinstance(changed, dict) or not changed:
        return "nothing"
    return ", ".join(f"{_FIELDS.get(name, name.replace('_', ' '))} {_value(name, v)}" for name, v in changed.items())


def _value(name: str, value: object) -> str:
    match value:
        case True | "True":
            return "on"
        case False | "False":
            return "off"
        case None | "" | "None":
            return "none"
    text = str(value)
    return span_text(float(text)) if name.endswith("_s") and text.replace(".", "", 1).isdigit() else text
