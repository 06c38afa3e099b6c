"""An archive of another installation, or of this one before its database was lost, becomes part of this one's.

Its rows have the other database's keys. So each file is written anew with this one's: jobs and runs are found by their
names, or made; rows get ids of their own. As always what is written is compared with a second reading before it counts.
A day of a cluster is one transaction, with the roll-ups of it: whoever is killed leaves whole days, and begins again.
The files that were offered stay as they are; in our own archive they go as replaced ones do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from django.conf import settings
from django.db import connection, transaction
from pyarrow import compute as pc

from monitoring.history.archive import counting, forgetting, location, offered, owners, parquet
from monitoring.history.archive.archiving import write_manifests
from monitoring.history.archive.kinds import KINDS
from monitoring.history.archive.late import BEFORE
from monitoring.history.archive.offered import OfferedDay, OfferedFile, OfferedRun, Unfit
from monitoring.history.archive.spans import Slice
from monitoring.history.archive.writing import ChangedMeanwhile, Draft, compare, place_on_trial, replace_row, write
from monitoring.history.partitions import partitions_of
from monitoring.models import (
    FINAL,
    ArchivedFile,
    ArchivedKind,
    ArchivedState,
    Checkpoint,
    Cluster,
    PartitionTouch,
    Rollup,
    Run,
)

_JOBS_AT_ONCE = 200


@dataclass
class Keys:
    """This database's: of each run there, and of each checkpoint of the day by its id there, ascending."""

    cluster: int
    runs: Mapping[int, int]
    there: pa.Array
    here: pa.Array


@dataclass
class Outcome:
    """`told`: what came of each day that is fit; `refused`: of the others, and why."""

    told: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def adopt(source: str, now: datetime, *, only_look: bool = False) -> Outcome:
    """All that lies in `source` and can be taken up. Every file of it is read before the first is. The caller is alone
    with the archive."""
    outcome, fit = Outcome(), list[OfferedDay]()
    if not only_look:
        forgetting.forget(now)
    for each in look(source):
        match each:
            case Unfit():
                outcome.refused.append(str(each))
            case Ours():
                outcome.told.append(str(each))
                if not only_look:
                    _write_manifests(each.day, [each.cluster])
            case OfferedDay():
                fit.append(each)
    lifetimes = lives(fit)
    for day in fit:
        try:
            outcome.told.append(_adopted(day, lifetimes, source, now, only_look=only_look))
        except (Unfit, ChangedMeanwhile) as why:
            outcome.refused.append(str(why))
    return outcome


def _adopted(
    day: OfferedDay,
    lifetimes: Mapping[OfferedRun, tuple[datetime, datetime]],
    source: str,
    now: datetime,
    *,
    only_look: bool,
) -> str:
    rows = sum(file.rows for file in day.files)
    what = f"{day}, {_cluster_name(day)}: {len(day.files):,} files, {rows:,} rows"
    if (cluster := taken_already(day)) is not None:
        if not only_look:
            _write_manifests(day.day, [cluster])
        return f"{what}; in the archive already."
    if only_look:
        return f"{what}; can be taken up."
    for _ in take_up(day, lifetimes, source, now):
        pass
    return f"{what}; taken up."


@dataclass(frozen=True)
class Ours:
    """A day of the archive itself, of which every file is known."""

    day: date
    cluster: int

    def __str__(self) -> str:
        return f"{self.day:%-d %B %Y} of cluster={self.cluster}; in the archive already."


def look(source: str) -> Iterator[OfferedDay | Ours | Unfit]:
    """Each day of a cluster, oldest first, that can be taken up, or why it cannot. Every file is read."""
    for day, cluster in offered.days_in(source):
        paths = offered.paths_of(source, day, cluster)
        known = _known(paths) if source == settings.ARCHIVE else {}
        try:
            if paths and known.keys() == set(paths):
                if ArchivedState.LIVE in known.values():  # else all of them go
                    yield Ours(day, cluster)
            else:
                yield _looked_at(source, day, cluster, known)
        except Unfit as why:
            yield why


def _known(paths: Collection[str]) -> dict[str, ArchivedState]:
    rows = ArchivedFile.objects.filter(path__in=paths)
    return {path: ArchivedState(state) for path, state in rows.values_list("path", "state")}


def _write_manifests(day: date, clusters: Collection[int]) -> None:
    """Beside what is read from there. Who was killed may not have come to it."""
    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE, day=day, cluster_id__in=clusters)
    write_manifests({(ArchivedKind(kind), day, of) for kind, of in live.values_list("kind", "cluster_id")})


def _looked_at(source: str, day: date, cluster: int, known: Collection[str]) -> OfferedDay:
    found = offered.day_in(source, day, cluster, known)
    with location.workshop() as workshop:
        for file in found.files:
            for _ in offered.read(found, file, workshop):
                pass
    return found


def taken_already(day: OfferedDay) -> int | None:
    """The cluster's key where the same was taken up before. Unfit: it is not ours, or there is something else of that
    day."""
    _not_in_postgresql(day)
    cluster = Cluster.objects.filter(name=_cluster_name(day)).first()
    if cluster is None:
        return None
    final = ArchivedFile.objects.filter(cluster_id=cluster.pk, day=day.day, state__in=FINAL)
    here = {(row.kind, row.since, row.until, row.rows) for row in final}
    wanted = {(file.kind.value, file.since, file.until, file.rows) for file in day.files}
    if here and here != wanted:
        raise Unfit(f"{day}: of {cluster} the archive has that day already, with other rows; one of both has to go")
    return cluster.pk if here else None


def _not_in_postgresql(day: OfferedDay) -> None:
    """A day that has a partition is archived from there."""
    midnight = datetime.combine(day.day, time(), UTC)
    for kind in {file.kind for file in day.files}:
        table = KINDS[kind].table
        dated = [each for each in partitions_of(table) if each.start is not None]
        if dated and dated[0].start is not None and midnight + timedelta(days=1) > dated[0].start:
            raise Unfit(
                f"{day}: PostgreSQL has a partition for it, {dated[0].name} or a later one; it is archived from there"
            )


def _cluster_name(day: OfferedDay) -> str:
    names = {run.cluster for run in day.runs.values()}
    if not names:
        raise Unfit(f"{day}: no manifest beside its files says whose they are")
    if len(names) != 1:
        raise Unfit(f"{day}: its manifests name {len(names)} clusters ({', '.join(sorted(names))}), and it is of one")
    return names.pop()


def lives(days: Sequence[OfferedDay]) -> dict[OfferedRun, tuple[datetime, datetime]]:
    """Of each run the first and the last moment that its files may tell of."""
    found: dict[OfferedRun, tuple[datetime, datetime]] = {}
    for day in days:
        since, until = min(file.since for file in day.files), max(file.until for file in day.files)
        for run in day.runs.values():
            began, ended = found.get(run, (since, until))
            found[run] = min(began, since), max(ended, until)
    return found


def take_up(
    day: OfferedDay, lifetimes: Mapping[OfferedRun, tuple[datetime, datetime]], source: str, now: datetime
) -> Iterator[str]:
    """As archiving's: says what it is about to do. Unfit, ChangedMeanwhile: nothing of the day counts then."""
    yield "keys"
    with location.workshop() as workshop:
        keys = _keys(day, lifetimes, workshop, now)
        rows: list[ArchivedFile] = []
        drafts: list[Draft] = []
        for number, file in enumerate(day.files):
            yield f"write {number}"
            draft, ids = _written(day, file, keys, workshop, number)
            yield f"compare {number}"
            compare(draft, _rekeyed(day, file, keys, workshop, ids))
            yield f"place {number}"
            rows.append(place_on_trial(draft, _slice(day, file, keys), _own_paths(day, source)))
            drafts.append(draft)
        yield "count"
        rollups = list(_counted(day, drafts, keys))
    yield "register"
    _register(day, rows, rollups, source)
    yield "manifests"
    # Where the offered files lay others may lie that had to wait for theirs.
    _write_manifests(day.day, {keys.cluster} | ({day.cluster} if source == settings.ARCHIVE else set()))


def _register(day: OfferedDay, rows: Sequence[ArchivedFile], rollups: Sequence[Rollup], source: str) -> None:
    midnight = datetime.combine(day.day, time(), UTC)
    with transaction.atomic():
        for row in rows:
            row.state = ArchivedState.LIVE
            replace_row(row)
        _let_go(day, source, {row.path for row in rows})
        counting.store(rollups)
        stored = Checkpoint.objects.filter(triggered_at__gte=midnight, triggered_at__lt=midnight + timedelta(days=1))
        if stored.exists():  # what came before its day was archived here came late
            PartitionTouch.objects.create(partition=BEFORE, moment=midnight)


def _own_paths(day: OfferedDay, source: str) -> set[str]:
    """Of the files that were offered, where they lie in our own archive. Written anew with the keys that they had, as
    when the first days of a lost database are taken up, a file is the one that was offered: the only one there is."""
    return {file.path.removeprefix(f"{source}/") for file in day.files} if source == settings.ARCHIVE else set()


def _let_go(day: OfferedDay, source: str, kept: Collection[str]) -> None:
    for file in day.files:
        path = file.path.removeprefix(f"{source}/")
        if path in _own_paths(day, source) - set(kept):
            replace_row(ArchivedFile(
                kind=file.kind, cluster_id=day.cluster, day=day.day, since=file.since, until=file.until, path=path,
                rows=file.rows, size=file.size, sha256=file.sha256, footer_sha256="", least_id=0, greatest_id=0,
                state=ArchivedState.GOING,
            ))  # fmt: skip


# --- keys ------------------------------------------------------------------------------------------------------------


def _keys(
    day: OfferedDay, lifetimes: Mapping[OfferedRun, tuple[datetime, datetime]], workshop: Path, now: datetime
) -> Keys:
    with transaction.atomic():
        cluster, runs = owners.found_or_made(_cluster_name(day), lifetimes, now)
    there = _ids(day, ArchivedKind.CHECKPOINTS, workshop)
    own = {key: runs[run] for key, run in day.runs.items()}
    return Keys(cluster, own, there, _fresh(ArchivedKind.CHECKPOINTS, len(there)))


def _ids(day: OfferedDay, kind: ArchivedKind, workshop: Path) -> pa.Array:
    """Of all rows of a kind, ascending. Unfit: one is there twice."""
    of_kind = (file for file in day.files if file.kind == kind)
    parts = [group["id"].to_numpy() for file in of_kind for group in offered.read(day, file, workshop)]
    found = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
    twice = found[1:][found[1:] == found[:-1]]
    if len(twice):
        raise Unfit(f"{day}: of its {kind.value} number {twice[0]} is there twice")
    return pa.array(found)


def _fresh(kind: ArchivedKind, count: int) -> pa.Array:
    """As many ids that nobody else gets, ascending."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)",
            [KINDS[kind].table.name, count],
        )
        return pa.array(sorted(key for (key,) in cursor.fetchall()), pa.int64())


# --- rows ------------------------------------------------------------------------------------------------------------


def _written(
    day: OfferedDay, file: OfferedFile, keys: Keys, workshop: Path, number: int
) -> tuple[Draft, pa.Array | None]:
    """With the ids of its rows, where they are not checkpoints'."""
    ids = None if file.kind == ArchivedKind.CHECKPOINTS else _fresh(file.kind, file.rows)
    path = workshop / f"draft-{number}.parquet"
    return write(path, KINDS[file.kind], _rekeyed(day, file, keys, workshop, ids)), ids


def _rekeyed(
    day: OfferedDay, file: OfferedFile, keys: Keys, workshop: Path, ids: pa.Array | None
) -> Iterator[pa.Table]:
    """In groups of equal size, as a file is read back."""
    at = 0
    for rows in offered.read(day, file, workshop):
        columns = {name: rows[name] for name in rows.column_names}
        if ids is None:
            columns["id"] = _mapped(file, rows["id"], keys)
        else:
            columns["id"] = ids.slice(at, rows.num_rows)
            at += rows.num_rows
        if "checkpoint_id" in columns and file.kind == ArchivedKind.OPERATORS:
            columns["checkpoint_id"] = _mapped(file, rows["checkpoint_id"], keys)
        if "run_id" in columns:
            columns["run_id"] = pa.array([keys.runs[run] for run in rows["run_id"].to_pylist()], pa.int64())
        yield pa.table(list(columns.values()), schema=KINDS[file.kind].schema).combine_chunks()


def _mapped(file: OfferedFile, ids: pa.ChunkedArray, keys: Keys) -> pa.ChunkedArray:
    places = pc.index_in(ids, value_set=keys.there)
    if places.null_count:
        strange = ids.filter(places.is_null())[0]
        raise Unfit(f"{file.path}: it has rows of checkpoint {strange}, which is not among those of its day")
    return keys.here.take(places.combine_chunks())


def _slice(day: OfferedDay, file: OfferedFile, keys: Keys) -> Slice:
    return Slice(file.kind, "", keys.cluster, day.day, file.since, file.until, file.rows)


def _counted(day: OfferedDay, drafts: Sequence[Draft], keys: Keys) -> Iterator[Rollup]:
    kind = KINDS[ArchivedKind.CHECKPOINTS]
    paths = [draft.path for draft in drafts if draft.kind is kind]
    jobs: dict[int, list[int]] = {}
    for run, job in Run.objects.filter(pk__in=keys.runs.values()).values_list("pk", "job_id"):
        jobs.setdefault(job, []).append(run)
    for first in range(0, len(jobs), _JOBS_AT_ONCE) if paths else ():
        some = list(jobs)[first : first + _JOBS_AT_ONCE]
        runs = [run for job in some for run in jobs[job]]
        yield from counting.rolled_up([parquet.matching(path, kind, "run_id", runs) for path in paths], day.day, some)
