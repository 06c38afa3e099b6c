"""Check that a person decided on the current run. A page may be outdated: its run may have ended or been replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.utils.text import capfirst
from django.utils.translation import gettext as _

from dashboard.audit_texts import actor_name
from monitoring.models import Job, RestartAttempt, RestartTrigger, Run, SavepointState
from monitoring.models.recovery import ENDED
from monitoring.units import age_text

_NO_RUN = -1


class JobChanged(Exception):
    """The job has changed since the page showed it. The message says what happened. The action was not carried out."""


@dataclass(frozen=True)
class ShownRun:
    """The run that a page showed.

    `run_id` is None if the page showed no run. `live` is None if the page did not say whether the run was active.
    """

    run_id: int | None
    live: bool | None = None

    @classmethod
    def read(cls, sent: Mapping[str, str], suffix: str = "") -> ShownRun | None:
        """Return the run from the fields of parts/shown.html, or None if the form does not have these fields.

        A value that is not a number becomes an id that no run has.
        """
        run = sent.get(f"shown_run{suffix}")
        if run is None:
            return None
        run_id = int(run) if run.isdecimal() else _NO_RUN
        return cls(run_id if run else None, sent.get(f"shown_live{suffix}") == "1")


def repeat_hint() -> str:
    """Return the sentence that pages add to JobChanged: the page below shows the current job."""
    return _("The page below shows the current job. Repeat the action if you still want it.")


def check_shown_run(job: Job, shown: ShownRun | None, now: datetime) -> None:
    """Check that the job still has the run that was shown. If `shown` is None, check nothing.

    Raises:
        JobChanged: another run replaced it, it has ended, or it is active again.
    """
    if shown is not None and (change := _describe_change(job, shown, now)):
        raise JobChanged(change)


def _describe_change(job: Job, shown: ShownRun, now: datetime) -> str:
    run = job.current_run
    if shown.run_id != job.current_run_id:
        return _describe_replacement(job, shown, now)
    if run is None:
        return ""
    if unpolled := _find_unpolled_restart(job, run):
        return _("%(restart)s replaced run %(number)s %(age)s ago. Waymark has not polled the new run yet.") % {
            "restart": capfirst(_restart_name(unpolled)),
            "number": run.number,
            "age": age_text(now - (unpolled.launched_at or now)),
        }
    if shown.live and not run.live:
        return _describe_end(run, now)
    if shown.live is False and run.live:
        return _("Run %(number)s is active again: %(state)s.") % {"number": run.number, "state": run.state}
    return ""


def _describe_replacement(job: Job, shown: ShownRun, now: datetime) -> str:
    """Return the text for a run that is no longer the current run of the job."""
    run, was = job.current_run, job.runs.filter(pk=shown.run_id or _NO_RUN).first()
    if run is None or was is None:
        number = run.number if run else "–"
        return _("This page does not belong to the current run of the job, run %(number)s.") % {"number": number}
    text = _("Run %(number)s replaced run %(was)s %(age)s ago.") % {
        "was": was.number,
        "number": run.number,
        "age": age_text(now - run.started_at),
    }
    attempt = job.restart_attempts.filter(engine_job_id=run.engine_job_id).first()
    if attempt is None:
        return text
    return f"{text} " + _("%(restart)s started the new run.") % {"restart": capfirst(_restart_name(attempt))}


def _describe_end(run: Run, now: datetime) -> str:
    text = _("Run %(number)s ended %(age)s ago with status %(state)s.") % {
        "number": run.number,
        "age": age_text(now - (run.ended_at or run.observed_at)),
        "state": run.state,
    }
    stop = run.savepoints.filter(stops_job=True, state=SavepointState.COMPLETED).exclude(requested_by="").first()
    if stop is None:
        return text
    return f"{text} " + _("%(who)s stopped the run with a savepoint.") % {"who": actor_name(stop.requested_by)}


def _find_unpolled_restart(job: Job, run: Run) -> RestartAttempt | None:
    """Return the restart that replaced `run` if no poll has stored the new run yet."""
    last = job.restart_attempts.filter(state__in=ENDED, old_run=run, launched_at__isnull=False).first()
    return last if last and not job.runs.filter(engine_job_id=last.engine_job_id).exists() else None


def _restart_name(attempt: RestartAttempt) -> str:
    if attempt.trigger == RestartTrigger.AUTOMATIC:
        return _("automatic restart %(epoch)s") % {"epoch": attempt.epoch}
    return _("restart %(epoch)s (%(who)s)") % {"epoch": attempt.epoch, "who": actor_name(attempt.requested_by)}
