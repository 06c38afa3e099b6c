"""Store all versions of the jobs' launch records, and with which version each run was started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from monitoring.models import Job, LaunchOrigin, LaunchVersion, Run

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Launched:
    """A run, and the launch record with which it was started. `remember` also updates `run` and its job in memory."""

    run: Run
    spec: Spec


def remember(launched: Sequence[Launched], origin: LaunchOrigin, by: str, now: datetime) -> None:
    """Set each spec as its job's launch record, with a new version if it differs from the newest one.

    The number of statements is constant. The caller holds the transaction.
    """
    newest = _newest({each.run.job_id for each in launched})
    created: dict[int, LaunchVersion] = {}
    for each in launched:
        last = created.get(each.run.job_id) or newest.get(each.run.job_id)
        if last is None or last.spec != each.spec:
            number = last.number + 1 if last else 1
            created[each.run.job_id] = LaunchVersion(
                job_id=each.run.job_id, number=number, spec=each.spec, origin=origin, created_at=now, created_by=by
            )
    LaunchVersion.objects.bulk_create(created.values())
    for each in launched:
        each.run.launch_version = created.get(each.run.job_id) or newest[each.run.job_id]
        each.run.job.launch = dict(each.spec)
    Run.objects.bulk_update([each.run for each in launched], ["launch_version"])
    Job.objects.bulk_update([each.run.job for each in launched], ["launch"])


def remember_edit(job: Job, spec: Spec, by: str, now: datetime) -> LaunchVersion:
    """Store a person's launch record for the job's next start. The caller holds the transaction."""
    last = _newest({job.pk}).get(job.pk)
    if last is None or last.spec != spec:
        number = last.number + 1 if last else 1
        last = LaunchVersion.objects.create(
            job=job, number=number, spec=spec, origin=LaunchOrigin.EDITED, created_at=now, created_by=by
        )
    job.launch = dict(spec)
    Job.objects.filter(pk=job.pk).update(launch=job.launch)
    return last


def what_changed(was: Spec, now: Spec) -> list[str]:
    """Return the names, for people, of the parts in which two launch records differ."""
    words = {
        "jar_id": "program",
        "jar_uri": "program",
        "entry_class": "entry",
        "program_args": "arguments",
        "limit_s": "time limit",
    }
    names = sorted(name for name in was.keys() | now.keys() if (was.get(name) or None) != (now.get(name) or None))
    return [words.get(name, name) for name in names]


def _newest(jobs: set[int]) -> dict[int, LaunchVersion]:
    found = LaunchVersion.objects.filter(job__in=jobs).order_by("job_id", "-number").distinct("job_id")
    return {version.job_id: version for version in found}
