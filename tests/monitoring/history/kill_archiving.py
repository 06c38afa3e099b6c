"""Archives and merges, in processes that are killed: each right before the next step that none was killed at yet.

python -m tests.monitoring.history.kill_archiving <location> [late|adopt [step…]]; prints each step with a digest of all
rows that there are after the kill, and at last the digest when it has come to its end. With `late` it takes up what
came late, and prints how many checkpoints roll-ups count as well; with `adopt` it runs the command that takes up an
archive, and prints how many files there are as well; killed at some kinds of steps only if any are named. Each try is
forked: starting Python anew takes long.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
django.setup()

from django.conf import settings  # noqa: E402
from django.core.management import call_command  # noqa: E402

import dashboard.management.commands.archive  # noqa: E402, F401  (else each try would)
from monitoring.history.archive import (  # noqa: E402
    adopting,
    archiving,
    compaction,
    counting,
    forgetting,
    late,
    location,
    offered,
    spans,
)
from monitoring.models import ArchivedFile, ArchivedState, Checkpoint, Cluster, Rollup  # noqa: E402
from tests.monitoring.history.archive_rows import NOW, OLD, everything  # noqa: E402

ROWS_A_FILE = 8
OF_A_KIND = 2  # steps of a kind, of the first and the second file for instance


def late_steps() -> Iterator[str]:
    for day in late._days():
        yield from (f"{day}: {step}" for step in late.steps(day))
    yield "forget what was replaced"
    forgetting.forget(NOW)


def late_digest() -> str:
    """Every checkpoint once, wherever it lies; what is both in PostgreSQL and in the archive may differ meanwhile."""
    known = {(row[1], row[2]) for row in everything()["checkpoints"]}
    told = Rollup.objects.filter(
        job__runs__checkpoints=Checkpoint.objects.filter(checkpoint_id=5001).latest("pk"),
        seconds__gt=60,
        start__lt=OLD + timedelta(days=20),
    )
    counted = sum(row.completed + row.failed for row in told)
    return f"{hashlib.sha256(repr(sorted(known)).encode()).hexdigest()}|{counted}"


def steps() -> Iterator[str]:
    yield "forget"
    forgetting.forget(NOW)
    for span in spans.due(NOW):
        yield from (f"{span}: {step}" for step in archiving.steps(span))
    while (small := compaction.next_small()) is not None:
        yield from (f"merged {small.kind} of {small.day}: {step}" for step in compaction.steps(small))
    yield "forget what was merged"
    forgetting.forget(NOW)


def digest() -> str:
    return hashlib.sha256(repr(everything()).encode()).hexdigest()


def adopt(reached: Callable[[str], None]) -> None:
    """The whole command; a step more is within `place`, and one within the transaction of `register`."""
    take_up, put, store = adopting.take_up, location.put, counting.store

    def stepwise(day: offered.OfferedDay, *rest: Any) -> Iterator[str]:
        for step in take_up(day, *rest):
            reached(f"{day}: {step}")
            yield step

    def put_in_place(source: Path, path: str) -> None:
        reached(f"{path}: put")
        put(source, path)

    def stored(rollups: Sequence[Rollup]) -> None:
        store(rollups)
        reached(f"{rollups[0].start} of {rollups[0].job_id}: store")

    adopting.take_up, location.put, counting.store = stepwise, put_in_place, stored
    call_command("archive", "adopt", stdout=StringIO())


def adopted() -> str:
    """Of each day and cluster that can be read: rows of each kind, and checkpoints that its roll-ups count."""
    counted = Rollup.objects.filter(seconds=86_400).values_list("job__cluster", "start__date", "completed", "failed")
    rows = ArchivedFile.objects.filter(state=ArchivedState.LIVE).values_list("cluster_id", "day", "kind", "rows")
    names = dict(Cluster.objects.values_list("pk", "name"))
    found: dict[str, dict[str, int]] = {}
    for cluster, day, completed, failed in counted:
        found.setdefault(f"{day} {names[cluster]}", {})["counted"] = completed + failed
    for cluster, day, kind, count in rows:
        of = found.setdefault(f"{day} {names[cluster]}", {})
        of[kind] = of.get(kind, 0) + count
    return json.dumps(found, sort_keys=True)


def adopted_and_files() -> str:
    return f"{adopted()}|{len(list(Path(settings.ARCHIVE).rglob('*.parquet')))}"


def stepping(reached: Callable[[str], None]) -> None:
    for step in STEPS():
        reached(step)


def killed_at(done: set[str], place: Path) -> None:
    def reached(step: str) -> None:
        wanted = not STEPS_NAMED or _word(step) in STEPS_NAMED
        if wanted and step not in done and sum(_word(each) == _word(step) for each in done) < OF_A_KIND:
            place.write_text(step)
            os.kill(os.getpid(), signal.SIGKILL)

    (adopt if DIGEST is adopted_and_files else stepping)(reached)


def _word(step: str) -> str:
    return step.split(": ")[-1].split()[0]


def forked(work: Callable[[], object]) -> int:
    """How a process of its own ended; this one never speaks to the database."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        work()
        sys.stdout.flush()
        os._exit(0)
    return os.waitpid(child, 0)[1]


STEPS, DIGEST = (late_steps, late_digest) if "late" in sys.argv[2:] else (steps, digest)
if "adopt" in sys.argv[2:]:
    DIGEST = adopted_and_files
STEPS_NAMED = sys.argv[3:]


def main() -> None:
    settings.ARCHIVE, spans.ROWS_A_FILE = sys.argv[1], ROWS_A_FILE
    place, done = Path(sys.argv[1] + ".step"), set[str]()

    def try_once() -> None:
        if done:
            print(place.read_text(), DIGEST(), sep="|", flush=True)
        killed_at(done, place)

    while (ended := forked(try_once)) == signal.SIGKILL:
        done.add(place.read_text())
    forked(lambda: print(f"ended {ended}", DIGEST(), sep="|"))


if __name__ == "__main__":
    main()
