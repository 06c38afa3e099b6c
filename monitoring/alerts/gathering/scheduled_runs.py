"""Gather due times and runs of jobs with a schedule of runs. Such jobs are few, so all of them are returned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from monitoring.alerts.gathering.query import FactQuery, Found, select
from monitoring.alerts.gathering.runs import runs_of
from monitoring.alerts.kinds.run_missed import CLOCK_SKEW
from monitoring.alerts.rule_facts import Event, Facts, RunFact
from monitoring.models import Job
from monitoring.savepoints.timetable import BadSchedule, Cron

# The last run that ended before the time range without failing.
_COVERED = """
SELECT DISTINCT ON (job_id) job_id, number, started_at, ended_at FROM monitoring_run
WHERE job_id = ANY(%(jobs)s) AND ended_at <= %(since)s AND state NOT IN ('FAILED', 'LOST')
ORDER BY job_id, started_at DESC
"""


def gather_scheduled_runs(query: FactQuery) -> Found:
    jobs = {job.pk: job for job in Job.objects.filter(pk__in=query.jobs).exclude(run_cron="")}
    runs = _runs(jobs, query.since)
    found = {key: Facts(events=_due_times(job, runs[key], query.until), runs=runs[key]) for key, job in jobs.items()}
    return found | {key: Facts() for key in query.must if key not in found}


def _runs(jobs: Collection[int], since: datetime) -> dict[int, list[RunFact]]:
    found: dict[int, dict[int, RunFact]] = defaultdict(dict)
    for key, number, started_at, ended_at in select(_COVERED, {"jobs": list(jobs), "since": since}) if jobs else ():
        found[key][number] = RunFact(number, started_at, ended_at, failed=False)
    for key, runs in (runs_of(jobs, since) if jobs else {}).items():
        found[key] |= {run.number: run for run in runs}
    return {key: sorted(found[key].values(), key=lambda run: run.started_at) for key in jobs}


def _due_times(job: Job, runs: Iterable[RunFact], until: datetime) -> list[Event]:
    """Return due times up to `until`: the first after the schedule was set, and after each run that did not fail."""
    since = job.run_cron_since or job.created_at
    try:
        timetable = Cron(job.run_cron, job.run_time_zone)
    except BadSchedule:
        return []
    bases = {max(since, run.started_at + CLOCK_SKEW) for run in runs if not run.failed} | {since}
    due = sorted({timetable.after(base, job.pk, timedelta()) for base in bases})
    return [Event(at, 1.0, 0, 0, _problem(job, at)) for at in due if at <= until]


def _problem(job: Job, due_at: datetime) -> str:
    """Return the job's stored problem if it is about this due time, else an empty text."""
    problem = job.run_problem_value
    return str(problem) if problem is not None and problem.args["due"] == due_at.isoformat() else ""
