"""Store the configuration of each job, and a row for each changed key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from monitoring.engine.answers import CheckpointConfig, JobConfig, Vertex
from monitoring.masking import shown, shown_launch
from monitoring.models import ChangeKind, ConfigurationChange, ConfigurationPart, Job, JobConfiguration, Run
from monitoring.polling.observation import RunObservation

Values = dict[str, Any]


def record(seen: Sequence[tuple[Run, RunObservation]], now: datetime) -> None:
    """Compare the configuration of each job's current run with the stored one, and store the differences."""
    read = {run.pk: (run, parts) for run, observed in seen if (parts := _parts(observed))}
    if not read:
        return
    jobs = Job.objects.filter(current_run__in=read).select_related("configuration")
    kept, changes = [], []
    for job in jobs:
        run, parts = read[job.current_run_id or 0]
        known = getattr(job, "configuration", None) or JobConfiguration(job=job, since=now)
        found = [] if known.pk is None else list(_changes(known.parts, parts))
        if found or parts.keys() - known.parts.keys():
            known.parts = {**known.parts, **parts}
            known.since = now if found else known.since
            kept.append(known)
        changes += [ConfigurationChange(job=job, run=run, at=now, **change) for change in found]
    _save(kept, changes)


def _save(kept: list[JobConfiguration], changes: list[ConfigurationChange]) -> None:
    JobConfiguration.objects.bulk_create(
        [JobConfiguration(job=each.job, parts=each.parts, since=each.since) for each in kept],
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["parts", "since"],
    )
    ConfigurationChange.objects.bulk_create(changes)


def _parts(observed: RunObservation) -> dict[str, Values]:
    """Return the parts that were read in this poll. Other parts count as unchanged."""
    parts: dict[str, Values] = {}
    if observed.config is not None:
        parts[ConfigurationPart.CHECKPOINTING] = _checkpointing(observed.config)
    if observed.job_config is not None:
        parts[ConfigurationPart.EXECUTION] = _execution(observed.job_config)
    if observed.vertices:
        parts[ConfigurationPart.OPERATORS] = _parallelism(observed.vertices)
    return parts


def _changes(before: Mapping[str, Values], after: Mapping[str, Values]) -> Iterator[dict[str, Any]]:
    for part in sorted(after.keys() & before.keys()):
        was, is_now = before[part], after[part]
        for key in sorted(was.keys() | is_now.keys()):
            if key not in is_now:
                yield {"part": part, "key": key, "kind": ChangeKind.REMOVED, "before": was[key]}
            elif key not in was:
                yield {"part": part, "key": key, "kind": ChangeKind.ADDED, "after": is_now[key]}
            elif was[key] != is_now[key]:
                values = {"before": was[key], "after": is_now[key]}
                yield {"part": part, "key": key, "kind": ChangeKind.CHANGED, **values}


def _checkpointing(config: CheckpointConfig) -> Values:
    return shown(_flat(config.raw))


def _execution(config: JobConfig) -> Values:
    """Return the restart strategy, the parallelism, the job's own parameters, and its launch record."""
    launch = shown_launch(config.launch or {})
    settings = launch.pop("configuration", None) or {}
    values = {"restart-strategy": config.restart_strategy, "job-parallelism": config.parallelism, **config.user_config}
    return shown({**values, **_flat(launch), **settings})


def _parallelism(vertices: Iterable[Vertex]) -> Values:
    """Return the parallelism by operator name, because IDs change.

    A number distinguishes operators with the same name.
    """
    values: Values = {}
    for vertex in vertices:
        same = sum(1 for key in values if key == vertex.name or key.startswith(f"{vertex.name} #"))
        values[f"{vertex.name} #{same + 1}" if same else vertex.name] = vertex.parallelism
    return values


def _flat(values: Mapping[str, Any], prefix: str = "") -> Values:
    flat: Values = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
