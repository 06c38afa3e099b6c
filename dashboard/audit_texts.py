"""Texts for the entries of the audit log. The log stores keys and details."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext_lazy as _

from dashboard.access.accounts import ROLE_LABELS
from dashboard.language import listed, rendered
from monitoring.models import AuditEntry
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import from_json
from monitoring.units import span_text

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

_FIELDS = {
    "auto_restart": _("automatic restart"),
    "allow_empty_start": _("empty start"),
    "automation_note": _("note"),
    "automation_paused": _("automation paused"),
    "pause_lasts": _("paused for"),
    "check_every_s": _("checked every"),
    "poll_interval_s": _("polled every"),
    "request_limit_s": _("request timeout"),
    "requests_at_once": _("concurrent requests"),
    "savepoint_jitter_s": _("spread of scheduled savepoints"),
    "savepoints_at_once": _("concurrent scheduled savepoints"),
    "rest_url": _("address"),
    "history_server": _("History Server"),
    "managed_elsewhere": _("managed by"),
    "max_restarts_per_day": _("maximum of restarts per day"),
    "max_restarts_per_hour": _("maximum of restarts per hour"),
    "oldest_state_s": _("oldest snapshot"),
    "restart_on_lost": _("restart when lost"),
    "restore_from": _("restored from"),
    "savepoint_schedule": _("savepoint schedule"),
    "savepoint_interval_s": _("savepoint interval"),
    "savepoint_cron": _("cron expression of savepoints"),
    "run_cron": _("cron expression of runs"),
    "savepoint_quiet": _("no savepoints between"),
    "savepoint_time_zone": _("time zone"),
    "run_schedule": _("run schedule"),
    "run_time_zone": _("time zone of the run schedule"),
    "final_savepoints_kept": _("final savepoints kept"),
    "savepoints_kept": _("newest savepoints kept"),
    "savepoints_kept_s": _("savepoints kept for"),
    "window_s": _("window"),
    "percent": _("share"),
    "limit_ms": _("time (ms)"),
    "days": _("days"),
    "summary_cron": _("times of the shift summary"),
    "summary_time_zone": _("time zone of the summary"),
    "summary_hours": _("hours in the summary"),
    "in_cluster": _("service account of the pod"),
    "kubeconfig": _("kubeconfig"),
    "namespaces": _("namespaces"),
    "label_selector": _("label selector"),
    "addresses": _("addresses of the ResourceManagers"),
    "queues": _("queues"),
    "users": _("users"),
    "application_tags": _("application tags"),
    "address_pattern": _("address of the REST APIs"),
    "may_change_resources": _("restart and save jobs through the Flink operator"),
    "enabled": _("switched on"),
    "role": _("role"),
    "email": _("mail address"),
}

# Actors that are not accounts. The audit log stores these names.
_IDENTITIES = {
    *(gettext_noop("waymark"), gettext_noop("anonymous"), gettext_noop("manage.py"), gettext_noop("inventory")),
    gettext_noop("discovery"),
}
Details = dict[str, Any]
_ACTIONS: dict[str, StrOrPromise | Callable[[Details], StrOrPromise]] = {
    "code.apply": lambda details: (
        _("applied the configuration: %(changes)s") % {"changes": details.get("changes", "nothing")}
    ),
    "cluster.add": _("added the cluster"),
    "cluster.archive": _("removed the cluster and kept the history of its jobs"),
    "cluster.change": lambda details: (
        _("changed the polling of the cluster: %(changes)s") % {"changes": _changes(details.get("now"))}
    ),
    "cluster.pause": _("paused the monitoring of the cluster"),
    "cluster.remove": _("removed the cluster"),
    "cluster.resume": _("resumed the monitoring of the cluster"),
    "cluster.same": lambda details: (
        _("confirmed that the rebuilt cluster is the same: now %(now)s") % {"now": details.get("now", "")}
    ),
    "incident.acknowledge": _("acknowledged the incident"),
    "channel.add": _("added the channel"),
    "channel.change": lambda details: (
        _("changed the channel: %(changes)s") % {"changes": listed(_names(details.get("now")))}
    ),
    "channel.remove": _("deleted the channel"),
    "channel.test": _("tested the channel"),
    "delivery.retry": _("retried the message"),
    "incident.snooze": _("snoozed the incident"),
    "incident.assign": lambda details: (
        _("assigned the incident to %(name)s") % {"name": details["now"]}
        if details.get("now")
        else _("removed the assignment of the incident")
    ),
    "maintenance.end": _("ended the maintenance window"),
    "maintenance.plan": _("scheduled a maintenance window"),
    "incident.resolve": _("resolved the incident"),
    "incident.reopen": _("reopened the incident"),
    "incident.note": _("added a note to the incident"),
    "job.automation": lambda details: (
        _("changed the automation: %(changes)s") % {"changes": _changes(details.get("now"))}
    ),
    "default.add": _("added default settings for jobs with these labels"),
    "default.change": _("changed default settings for jobs with these labels"),
    "default.remove": _("removed default settings for jobs with these labels"),
    "discovery.add": _("added the source of clusters"),
    "discovery.change": lambda details: (
        _("changed the source of clusters: %(changes)s") % {"changes": _changes(details.get("now"))}
    ),
    "discovery.remove": _("removed the source of clusters"),
    "job.add": _("added the job before its first run"),
    "job.defaults": lambda details: (
        _("applied default settings to the job: %(changes)s") % {"changes": _changes(details.get("now"))}
    ),
    "job.cancel": _("requested the cancellation of the job"),
    "job.cancel-taken": _("canceled the job"),
    "job.not-canceled": _("could not cancel the job"),
    "job.program-sent": lambda details: (
        _("sent the program %(name)s to the cluster") % {"name": details.get("name", "")}
    ),
    "job.program-refused": lambda details: (
        _("could not upload the program %(name)s") % {"name": details.get("name", "")}
    ),
    "job.program": lambda details: _("uploaded the program %(name)s") % {"name": details.get("name", "")},
    "job.launch": lambda details: (
        _("changed the launch settings (version %(version)s)") % {"version": details.get("version")}
    ),
    "automation.pause": _("paused the automation"),
    "automation.resume": _("resumed the automation"),
    "restart.breaker-close": _("closed the breaker"),
    "restart.breaker-open": _("opened the breaker"),
    "restart.cancel": _("canceled the restart"),
    "restart.canceled": _("canceled the restart"),
    "restart.decide": _("decided to restart the job"),
    "restart.failed": _("could not restart the job"),
    "restart.needs-person": _("requested manual action"),
    "restart.succeeded": _("restarted the job"),
    "rule.import": lambda details: (
        _("imported rules and channels: %(changes)s") % {"changes": details.get("changes", "nothing")}
    ),
    "rule.remove": _("removed the rule"),
    "rule.change": lambda details: (
        _("changed the rule: %(changes)s") % {"changes": _changes(_without(details, "before"))}
    ),
    "runbook.add": _("added a runbook"),
    "runbook.change": _("changed the runbook"),
    "runbook.remove": _("deleted the runbook"),
    "objective.change": lambda details: (
        _("changed the objective: %(changes)s") % {"changes": _changes(details.get("now"))}
    ),
    "objective.remove": _("deleted the objective"),
    "job.run_schedule": lambda details: _("set the run schedule to %(schedule)s") % {"schedule": _schedule(details)},
    "savepoint.dispose": _("deleted a savepoint"),
    "savepoint.keep": lambda details: _("edited a savepoint: %(changes)s") % {"changes": _changes(details.get("now"))},
    "savepoint.request": _("requested a savepoint"),
    "savepoint.retention": lambda details: (
        _("changed the savepoint retention: %(changes)s") % {"changes": _changes(details.get("now"))}
    ),
    "savepoint.schedule": lambda details: (
        _("set the savepoint schedule to %(schedule)s") % {"schedule": _schedule(details)}
    ),
    "savepoint.stop": _("requested a stop with a savepoint"),
    "state.read": lambda details: (
        _("read the state of %(snapshot)s") % {"snapshot": details.get("snapshot", "a snapshot")}
    ),
    "secrets.rekey": _("encrypted the stored secrets again"),
    "user.activate": _("activated the account"),
    "user.change": lambda details: _("changed the account: %(changes)s") % {"changes": _changes(details.get("now"))},
    "user.create": lambda details: _("created the account: %(changes)s") % {"changes": _changes(details.get("now"))},
    "user.deactivate": _("deactivated the account"),
    "user.grant": lambda details: _("granted %(grant)s") % {"grant": _grant(details, "now")},
    "user.confirm-failed": lambda details: (
        _("entered a wrong password to confirm a change, from %(address)s") % {"address": details.get("address", "")}
    ),
    "user.delete": _("deleted the account"),
    "user.log-in": lambda details: (
        _("logged in from %(address)s") % {"address": details["address"]} if "address" in details else _("logged in")
    ),
    "user.log-in-failed": lambda details: (
        _("failed to log in from %(address)s") % {"address": details.get("address", "")}
    ),
    "user.log-in-limited": _("stopped further log-ins for a while"),
    "user.log-out": _("ended all sessions and revoked all API tokens"),
    "user.password": _("set a new password"),
    "user.ungrant": lambda details: _("revoked %(grant)s") % {"grant": _grant(details, "was")},
    "token.make": lambda details: (
        _("created a token that can %(may_write)s") % {"may_write": "write" if details.get("may_write") else "read"}
    ),
    "token.revoke": _("revoked the token"),
}


def actor_name(actor: str) -> str:
    """Return the name of an actor, or of a requester, in the language of the page. Accounts keep their names."""
    return gettext(actor) if actor in _IDENTITIES else actor


def action_text(entry: AuditEntry) -> str:
    """Return what the actor did; `<actor> <text>` is a sentence. Return the key itself if it has no text."""
    words = _ACTIONS.get(entry.action)
    if words is None:
        return entry.action
    return str(words(entry.details) if callable(words) else words)


def target_text(entry: AuditEntry) -> str:
    """Return the target of an entry. For a job or a cluster, this is only its name."""
    return entry.target.removeprefix("job ").removeprefix("cluster ")


def reason_text(entry: AuditEntry) -> str:
    return str(_("scheduled")) if entry.reason == "schedule" else rendered(stored(entry, "reason"))


def _schedule(details: Details) -> str:
    schedule = details.get("schedule", "none")
    return str(_("off")) if schedule == "none" else rendered(from_json(details.get("schedule_value")) or schedule)


def _without(details: Details, name: str) -> Details:
    return {key: value for key, value in details.items() if key != name}


def _grant(details: Details, when: str) -> str:
    granted = details.get(when)
    if not isinstance(granted, dict):
        return ""
    scope = rendered(from_json(details.get("on_value")) or str(granted.get("on", "")))
    return _("%(role)s on %(on)s") % {"role": _value("role", granted.get("role")), "on": scope}


def _names(changed: object) -> list[str]:
    named = changed if isinstance(changed, dict) else {}
    return [_named(name) for name in named] or [str(_("nothing"))]


def _named(field: str) -> str:
    return str(_FIELDS.get(field) or gettext(field.replace("_", " ")))


def _changes(changed: object) -> str:
    if not isinstance(changed, dict) or not changed:
        return str(_("nothing"))
    return listed(f"{_named(name)} {_value(name, v)}" for name, v in changed.items())


def _value(name: str, value: object) -> str:
    match value:
        case True | "True":
            return str(_("on"))
        case False | "False":
            return str(_("off"))
        case None | "" | "None":
            return str(_("none"))
    text = str(value)
    if name == "role":
        return gettext(ROLE_LABELS.get(text, text))
    is_seconds = name.endswith("_s") and text.replace(".", "", 1).isdigit()
    return span_text(float(text)) if is_seconds else text
