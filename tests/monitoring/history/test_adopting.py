"""An archive whose database was lost, or another installation's, is taken up exactly; what is wrong is named."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Model

from monitoring.history.archive import adopting, cycle, offered, reading
from monitoring.history.partitions import cover
from monitoring.history.quantiles import quantiles
from monitoring.models import (
    ArchivedFile,
    ArchivedState,
    Checkpoint,
    Cluster,
    CounterSample,
    Job,
    OperatorCheckpoint,
    Rollup,
    Run,
)
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import NOW, OLD, checkpoints, everything, fill
from tests.monitoring.history.conftest import Pipeline
from tests.monitoring.history.kill_archiving import adopted
from tests.monitoring.history.test_archive import ROOT, database_url

FILES = 3 * 3  # three kinds of three days


def known() -> list[tuple[Any, ...]]:
    """Checkpoints and what their roll-ups say, by names instead of keys."""
    runs = {run.pk: (run.job.name, run.engine_job_id) for run in Run.objects.select_related("job")}
    rows = [(*runs[row[1]], *row[2:-1]) for row in everything()["checkpoints"]]
    days = Rollup.objects.filter(seconds=86_400, start__lt=NOW - timedelta(days=30)).select_related("job")
    columns = [each.name for each in Rollup._meta.concrete_fields if each.name != "job"]
    told = [(day.job.name, *(_plain(getattr(day, name)) for name in columns)) for day in days]
    return sorted(map(repr, rows)) + sorted(map(repr, told))


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def shares() -> list[tuple[Any, ...]]:
    """Operators and samples, without keys."""
    there = everything()
    return sorted((row[2:] for row in (*there["operators"], *there["samples"])), key=repr)


def lose_the_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE monitoring_cluster, monitoring_rollup, monitoring_archivedfile CASCADE")


@pytest.fixture
def archived(old: Rows, pipeline: Pipeline, archive: Path) -> Run:
    """Three days of August, of which nothing is in PostgreSQL besides."""
    run = fill(old, 120)
    pipeline.run()
    assert cycle.advance(NOW).startswith("Archived")
    Checkpoint.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE monitoring_operatorcheckpoint, monitoring_countersample")
    return run


def adopt(*arguments: str) -> str:
    out = StringIO()
    call_command("archive", "adopt", *arguments, stdout=out)
    return out.getvalue()


def test_an_archive_whose_database_was_lost_is_taken_up_exactly(archived: Run, archive: Path) -> None:
    before, others = known(), shares()
    lose_the_database()
    assert "can be taken up" in adopt("--dry-run")
    assert not ArchivedFile.objects.exists()
    assert not Cluster.objects.exists()
    told = adopt().splitlines()
    assert len(told) == 3
    assert told[0].startswith("13 August 2026 of cluster=")
    assert told[0].endswith(f"{archived.job.cluster.name}: 3 files, 144 rows; taken up.")
    assert known() == before
    assert shares() == others
    job = Job.objects.get()
    run = job.runs.get()
    assert (run.number, run.engine_job_id, run.final_read_done) == (archived.number, archived.engine_job_id, True)
    assert run.started_at <= OLD
    assert not job.cluster.enabled
    begun = quantiles(job, OLD - timedelta(minutes=1), OLD + timedelta(hours=1))
    assert begun.counts["completed"] == 3
    found = reading.checkpoint(min(row[0] for row in everything()["checkpoints"]))
    assert found is not None
    assert [each.name for each in reading.operators(found)] == ["source", "sink"]
    cycle.advance(NOW)  # what was offered goes: it lies in our own archive
    live = {each.path for each in ArchivedFile.objects.filter(state=ArchivedState.LIVE)}
    assert {str(each.relative_to(archive)) for each in archive.rglob("*.parquet")} == live
    assert len(live) == FILES
    assert all(line.endswith("in the archive already.") for line in adopt().splitlines())
    assert known() == before


def test_another_installations_joins_a_job_that_is_known_and_stays_as_it_is(
    archived: Run, archive: Path, settings, tmp_path: Path
) -> None:
    before = known()
    name, engine_id = archived.job.cluster.name, archived.engine_job_id
    job_name = archived.job.name
    lose_the_database()
    rows = Rows(numbers=itertools.count(1000))
    job = rows.job(rows.cluster(name=name), name=job_name)
    for _ in range(3):
        rows.run(job)
    run = rows.run(job, engine_job_id=engine_id)
    newest = rows.run(job)
    source, settings.ARCHIVE = archive, str(tmp_path / "ours")
    offered_files = {each: each.read_bytes() for each in source.rglob("*.*")}
    adopt(str(source))
    assert known() == before
    assert Run.objects.filter(engine_job_id=engine_id).get() == run
    numbers = list(job.runs.order_by("number").values_list("pk", "number"))
    assert numbers[0] == (run.pk, archived.number)
    assert numbers[-1][0] == newest.pk  # what the archive does not know is newer
    assert {each: each.read_bytes() for each in source.rglob("*.*")} == offered_files
    assert all(line.endswith("in the archive already.") for line in adopt(str(source)).splitlines())


def test_interrupted_at_each_step_it_is_whole_days_or_nothing_and_goes_on(archived: Run, archive: Path) -> None:
    before = known()
    lose_the_database()
    days = [day for day in adopting.look(str(archive)) if isinstance(day, offered.OfferedDay)]
    lifetimes = adopting.lives(days)
    word = ""
    for stop in itertools.count(1):
        going = adopting.take_up(days[0], lifetimes, str(archive), NOW)
        word = [next(going) for _ in range(stop)][-1]
        going.close()
        if word == "manifests":
            break
        assert not ArchivedFile.objects.filter(state=ArchivedState.LIVE).exists()
        assert not Rollup.objects.exists()
    assert ArchivedFile.objects.filter(state=ArchivedState.LIVE).count() == 3
    assert Rollup.objects.filter(seconds=86_400).count() == 1
    adopt()
    assert known() == before
    for directory in {file.parent for file in archive.rglob("*.parquet")}:
        assert (directory / "manifest.json").exists()
    cycle.advance(NOW)
    live = {each.path for each in ArchivedFile.objects.filter(state=ArchivedState.LIVE)}
    assert {str(each.relative_to(archive)) for each in archive.rglob("*.parquet")} == live


@pytest.fixture
def of_two_clusters(old: Rows, pipeline: Pipeline, archive: Path) -> None:
    """Two days of August: of a job with a run each, and of one of another cluster on the first of them."""
    job, other = old.job(), old.job()
    for run, begun in ((old.run(job), OLD), (old.run(job), OLD + timedelta(days=1)), (old.run(other), OLD)):
        Run.objects.filter(pk=run.pk).update(started_at=begun)
        checkpoints(run, [begun + n * timedelta(minutes=40) for n in range(12)], 1)
        checkpoints(run, [NOW - timedelta(minutes=100 - n) for n in range(100)], 1001)
    pipeline.run()
    assert cycle.advance(NOW).startswith("Archived")
    Checkpoint.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE monitoring_operatorcheckpoint, monitoring_countersample")


def go_on_from(model: type[Model], number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s, false)", [model._meta.db_table, number])


def with_the_numbers_that_were() -> None:
    """The first files of a database that is empty again are, byte by byte, those that are offered."""
    first = {model: model.objects.order_by("pk").values_list("pk", flat=True)[0] for model in (Cluster, Job, Run)}
    there = everything()
    kinds = {Checkpoint: "checkpoints", OperatorCheckpoint: "operators", CounterSample: "samples"}
    first |= {model: there[kind][0][0] for model, kind in kinds.items()}
    lose_the_database()
    for model, number in first.items():
        go_on_from(model, number)


def with_each_others_numbers() -> None:
    """The first cluster gets the number of the second one, in whose directory files wait for being taken up."""
    second = Cluster.objects.latest("pk").pk
    lose_the_database()
    go_on_from(Cluster, second)


STEPS = ("keys", "write", "compare", "place", "put", "count", "register", "store", "manifests")


# Numbers that were taken by who was killed are not given twice: only the first try gets those that were.
@pytest.mark.parametrize(
    ("lose", "kinds"),
    [
        (with_the_numbers_that_were, ["register"]),
        pytest.param(with_each_others_numbers, STEPS, marks=pytest.mark.nightly),
    ],
)
def test_killed_at_each_step_it_goes_on_and_nothing_is_lost_or_double(
    of_two_clusters: None, archive: Path, lose: Callable[[], None], kinds: Sequence[str]
) -> None:
    before, others, whole = known(), shares(), json.loads(adopted())
    numbers = dict(Run.objects.values_list("engine_job_id", "number"))
    lose()
    command = [sys.executable, "-m", "tests.monitoring.history.kill_archiving", str(archive), "adopt", *kinds]
    environ = os.environ | {"DATABASE_URL": database_url(), "WAYMARK_ARCHIVE": str(archive)}

    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=200)

    told = [line.split("|") for line in done.stdout.splitlines()]
    assert (done.returncode, told[-1][0]) == (0, "ended 0"), done.stderr
    if lose is with_the_numbers_that_were:
        assert int(told[0][2]) == FILES  # what was written is what was offered
    for step, digest, _ in told:
        assert json.loads(digest).items() <= whole.items(), step
    seen = {step.split(": ")[-1].split()[0] for step, *_ in told[:-1]}
    assert seen == set(kinds)
    assert known() == before
    assert shares() == others
    assert dict(Run.objects.values_list("engine_job_id", "number")) == numbers
    cycle.advance(NOW)
    live = {Path(each.path) for each in ArchivedFile.objects.filter(state=ArchivedState.LIVE)}
    assert {each.relative_to(archive) for each in archive.rglob("*.parquet")} == live
    assert ArchivedFile.objects.count() == len(live) == FILES
    for directory in {archive / path.parent for path in live}:
        named = {each["name"] for each in json.loads((directory / "manifest.json").read_text())["files"]}
        assert named == {each.name for each in directory.glob("*.parquet")}
    assert all(line.endswith("in the archive already.") for line in adopt().splitlines())


def _cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _turn_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _no_manifest(file: Path) -> None:
    (file.parent / "manifest.json").unlink()


def _manifest_of_another_kind(file: Path) -> None:
    (file.parent / "manifest.json").write_text('["no", "manifest"]')


def _newer_manifest(file: Path) -> None:
    _change(file, lambda told: told.update(version=2))


def _runs_unknown(file: Path) -> None:
    for manifest in file.parents[3].glob("*/day=2026-08-14/*/manifest.json"):
        _change(manifest, lambda told: told.update(runs={}))


def _climbing_out(file: Path) -> None:
    _change(file, lambda told: told["files"][0].update(name="../../../etc/passwd"))


def _other_rows(file: Path) -> None:
    _change(file, lambda told: told["files"][0].update(rows=7))


def _other_time(file: Path) -> None:
    _change(file, lambda told: told["files"][0].update(until="2026-08-14T00:40:00+00:00"))


def _strange(file: Path) -> None:
    shutil.copy(file, file.parent / "0000-0123456789abcdef.parquet")


def _change(file: Path, how: Callable[[dict[str, Any]], object]) -> None:
    manifest = file.parent / "manifest.json"
    told = json.loads(manifest.read_text())
    how(told)
    manifest.write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.unlink, "it is in the manifest, and missing"),
        (_cut_off, "bytes, and its manifest says"),
        (_turn_a_bit, "it has another content than was written"),
        (_no_manifest, "it is missing, and says what there is"),
        (_manifest_of_another_kind, "it is no manifest of an archive"),
        (_newer_manifest, "it is of version 2, and 1 is known"),
        (_runs_unknown, "of which its manifest knows nothing"),
        (_climbing_out, "it is no manifest of an archive (ValueError: name '../../../etc/passwd')"),
        (_other_rows, "rows, and its manifest says 7"),
        (_other_time, "and its manifest says"),
        (_strange, "it is not in the manifest beside it"),
    ],
)
def test_what_is_wrong_is_refused_by_name_and_the_rest_taken_up(
    archived: Run, archive: Path, damage: Callable[[Path], object], said: str
) -> None:
    lose_the_database()
    (file,) = archive.glob("checkpoints/day=2026-08-14/*/*.parquet")
    damage(file)
    with pytest.raises(CommandError) as refused:
        adopt()
    assert str(refused.value).startswith("1 refused:\n")
    assert said in str(refused.value)
    assert "day=2026-08-14" in str(refused.value)
    assert set(ArchivedFile.objects.filter(state="live").values_list("day__day", flat=True)) == {13, 15}
    assert set(Rollup.objects.values_list("start__day", flat=True)) == {13, 15}


def test_what_is_there_twice_is_refused(archived: Run, archive: Path, settings, tmp_path: Path) -> None:
    lose_the_database()
    adopt()
    other = ArchivedFile.objects.filter(kind="checkpoints", state="live").first()
    assert other is not None
    ArchivedFile.objects.filter(pk=other.pk).update(rows=other.rows + 1)
    copy = tmp_path / "copy"
    shutil.copytree(archive, copy)
    shutil.rmtree(archive)
    with pytest.raises(CommandError, match="the archive has that day already, with other rows"):
        adopt(str(copy))
    ArchivedFile.objects.all().delete()
    cover(OLD)
    with pytest.raises(CommandError, match="PostgreSQL has a partition for it"):
        adopt(str(copy))
    with pytest.raises(CommandError, match="there is no archive; it would have checkpoints/day="):
        adopt(str(tmp_path / "nowhere"))
    with pytest.raises(CommandError, match="neither an absolute path nor an address"):
        adopt("relative")
