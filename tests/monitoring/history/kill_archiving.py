"""A program that archives and merges in child processes. Each one is killed right before the next untested step.

python -m tests.monitoring.history.kill_archiving <location> [late]; prints each step with a digest of all rows after
the kill, and in the end the digest of a complete run. With `late` it archives late rows, and also prints how many
checkpoints the roll-ups count. Each try is a fork, because a new Python process takes long to start.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
django.setup()

from django.conf import settings  # noqa: E402

from monitoring.history.archive import archiving, cycle, due, rewriting, spans  # noqa: E402
from monitoring.history.archive.moving import Mover  # noqa: E402
from monitoring.models import Checkpoint, Rollup  # noqa: E402
from tests.monitoring.history.archive_rows import NOW, OLD, everything  # noqa: E402

ROWS_A_FILE = 4
OF_A_KIND = 2  # kills per kind of step, such as one for each of the first two files


def late_steps() -> Iterator[str]:
    with Mover() as mover:
        for late in rewriting.late_months({OLD.date()}):
            yield from (f"{late.month.month}: {step}" for step in rewriting.steps(late, mover))
        yield "forget the touches"
        rewriting.take_up(mover, lambda: True)
    yield "forget what was replaced"
    cycle.forget(NOW)


def late_digest() -> str:
    """Return a digest that has each checkpoint once, because its rows in PostgreSQL and in the archive may differ."""
    known = {(row[1], row[2]) for row in everything()["checkpoints"]}
    result = Rollup.objects.filter(
        job__runs__checkpoints=Checkpoint.objects.filter(checkpoint_id=5001).latest("pk"),
        seconds__gt=60,
        start__lt=OLD + timedelta(days=20),
    )
    counted = sum(row.completed + row.failed for row in result)
    return f"{hashlib.sha256(repr(sorted(known)).encode()).hexdigest()}|{counted}"


def steps() -> Iterator[str]:
    yield "forget"
    cycle.forget(NOW)
    with Mover() as mover:
        for span in spans.due(NOW):
            yield from (f"{span}: {step}" for step in archiving.steps(span, mover))
        due.ROWS_A_FILE, due._is_complete = 500_000, lambda month: True  # as if it were September
        while (small := due.next_small()) is not None:
            yield from (f"merged {small.kind}: {step}" for step in rewriting.merging(small, mover))
    yield "forget what was merged"
    cycle.forget(NOW)


def digest() -> str:
    return hashlib.sha256(repr(everything()).encode()).hexdigest()


def killed_at(done: set[str], place: Path) -> None:
    for step in STEPS():
        if step not in done and sum(_word(each) == _word(step) for each in done) < OF_A_KIND:
            place.write_text(step)
            os.kill(os.getpid(), signal.SIGKILL)


def _word(step: str) -> str:
    return step.split(": ")[-1].split()[0]


def forked(work: Callable[[], object]) -> int:
    """Run `work` in a child process and return how it ended. The parent process never uses the database."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        work()
        sys.stdout.flush()
        os._exit(0)
    return os.waitpid(child, 0)[1]


STEPS, DIGEST = (late_steps, late_digest) if "late" in sys.argv[2:] else (steps, digest)


def main() -> None:
    settings.ARCHIVE, due.ROWS_A_FILE = sys.argv[1], ROWS_A_FILE
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
