"""Store each of the engine's exceptions once, however often the engine lists it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from monitoring.engine.answers import JobException
from monitoring.models import Run, RunException
from monitoring.polling.observation import RunObservation


def record(seen: Sequence[tuple[Run, RunObservation]]) -> None:
    reported = {
        (run.pk, digest(exception)): exception for run, observed in seen for exception in observed.exceptions or ()
    }
    if not reported:
        return
    runs, digests = {run for run, _ in reported}, {known for _, known in reported}
    stored = set(RunException.objects.filter(run__in=runs, digest__in=digests).values_list("run_id", "digest"))
    rows = [_row(*key, exception) for key, exception in reported.items() if key not in stored]
    RunException.objects.bulk_create(rows, ignore_conflicts=True)


def digest(exception: JobException) -> str:
    """Return the exception's digest, without the host, which an earlier poll may not have had."""
    text = "\0".join((exception.at.isoformat(), exception.name, exception.task, exception.message))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _row(run: int, known: str, exception: JobException) -> RunException:
    return RunException(
        run_id=run,
        digest=known,
        at=exception.at,
        name=exception.name,
        message=exception.headline,
        root_cause=exception.message,
        task=exception.task,
        host=exception.host,
        stacktrace=exception.stacktrace,
    )
