"""Well-known Spark programs, run by a real job manager. Only the wrapper `def program` was added.

Each program gets its input in three parts: before a checkpoint, after it, and after its driver was killed. The result
must equal a plain computation over the whole input. Four programs run as one job, sent as a zip file, because each job
starts Spark twice. In `make nightly` each program also runs as a separate job.
"""

from __future__ import annotations

import datetime
import json
import random
import signal
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.cluster import Job, JobManagers
from tests.checkpointing.spark.sink_log import logged
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.spark, pytest.mark.timeout(900)]

PROGRAMS = Path(__file__).parent / "programs"
NOON = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
LIGHT = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "execution.checkpointing.interval": "500ms",
}

Parts = list[dict[str, str]]


@dataclass(frozen=True)
class Example:
    """An example program with its input files in three `parts`. `read` returns the output, which must be `expected`."""

    name: str
    parts: Parts
    read: Callable[[Path], Any]
    expected: Any


def word_count() -> Example:
    chance = random.Random(1)
    texts = [" ".join(chance.choices("abcdef", k=50)) for _ in range(3)]
    parts = [{f"{number}.txt": text} for number, text in enumerate(texts)]
    return Example("word_count", parts, counts, Counter(" ".join(texts).split()))


def sessionization() -> Example:
    """Return clicks. Ann's session spans the kill, Bob's second one begins with it, and the last click ends them."""
    minutes = {"ann": [0, 5, 9, 14, 20, 26], "bob": [1, 2, 15, 16], "eve": [3]}
    clicks = sorted((minute, user) for user, own in minutes.items() for minute in own)
    cuts = [clicks[:4], clicks[4:7], [*clicks[7:], (600, "end")]]
    parts = [
        {f"{number}.json": lines({"user": user, "at": moment(minute)} for minute, user in cut)}
        for number, cut in enumerate(cuts)
    ]
    expected = [("ann", 0, 26, 6), ("bob", 1, 2, 2), ("bob", 15, 16, 2), ("eve", 3, 3, 1)]
    return Example("sessionization", parts, sessions, expected)


def stream_join() -> Example:
    """Return advertisements and clicks. A click is one part later, so its advertisement waits in the state."""
    shown = [{"ad": ad, "shown_at": moment(ad)} for ad in range(30)]
    clicked = [{"clicked_ad": ad, "clicked_at": moment(ad + 30)} for ad in range(0, 30, 2)]
    late = [{"clicked_ad": ad, "clicked_at": moment(ad + 61)} for ad in range(1, 30, 2)]
    parts = [
        {"shown/0.json": lines(shown[:20]), "clicked/0.json": lines(late)},
        {"shown/1.json": lines(shown[20:]), "clicked/1.json": lines(clicked[:5])},
        {"clicked/2.json": lines(clicked[5:])},
    ]
    return Example("stream_join", parts, lambda out: sorted(row["ad"] for row in rows(out)), list(range(0, 30, 2)))


def deduplication() -> Example:
    """Return events. Every part repeats all events of the earlier parts."""
    parts = [
        {f"{number}.json": lines({"id": id_, "at": moment(id_)} for id_ in range(20 * (number + 1)))}
        for number in range(3)
    ]
    return Example("deduplication", parts, lambda out: sorted(row["id"] for row in rows(out)), list(range(60)))


def etl() -> Example:
    parts = [
        {f"{number}.csv": "id,country,amount\n" + "".join(f"{n}, nl ,{n % 5 - 1}\n" for n in range(number, 99, 3))}
        for number in range(3)
    ]
    expected = sorted((n, "NL") for n in range(99) if n % 5 > 1)
    return Example("etl", parts, lambda out: sorted((row["id"], row["country"]) for row in rows(out)), expected)


JOBS = [[sessionization], [word_count, stream_join, deduplication, etl]]


@pytest.mark.parametrize("examples", JOBS)
def test_example_programs_survive_the_loss_of_their_driver(
    examples: Sequence[Callable[[], Example]], job_managers: JobManagers, tmp_path: Path
) -> None:
    running = [Running(make(), tmp_path) for make in examples]
    for each in running:
        each.deliver(0)
    job = submitted(running, job_managers, tmp_path)
    eventually("the job runs", job.is_running)
    eventually("batches of all", lambda: all(each.output.exists() for each in running))
    before = job.completed_id()
    eventually("a checkpoint after them", lambda: job.completed_id() > before)
    for each in running:
        each.deliver(1)
    job.signal_driver(signal.SIGKILL)
    for each in running:
        each.deliver(2)
    for each in running:
        each.await_result()
    record = job.record()
    assert record["attempt"] == 2
    assert record.get("local_directory") or record["restored_checkpoint_id"]
    job.cancel()
    for each in running:
        assert each.result == each.example.expected


class Running:
    """An example with its directories."""

    def __init__(self, example: Example, root: Path) -> None:
        self.example = example
        self.source, self.output = root / "in" / example.name, root / "out" / example.name
        for name in {Path(name).parent for part in example.parts for name in part}:
            (self.source / name).mkdir(parents=True, exist_ok=True)

    def deliver(self, part: int) -> None:
        for name, text in self.example.parts[part].items():
            unfinished = self.source / f".{name.replace('/', '-')}"
            unfinished.write_text(text)
            unfinished.rename(self.source / name)

    @property
    def result(self) -> Any:
        """Return the result, or None if a file of the sink's log is missing because a restore just replaces the log."""
        try:
            return self.example.read(self.output)
        except FileNotFoundError:
            return None

    def await_result(self) -> None:
        eventually(f"the result of {self.example.name}", lambda: self.result == self.example.expected)
        if (self.output / "_spark_metadata").exists():
            eventually("a listing shows no more than the log", lambda: listed(self.output) == logged(self.output))


def submitted(running: Sequence[Running], job_managers: JobManagers, root: Path) -> Job:
    """Submit one example as its file, or several as a zip file."""
    if len(running) == 1:
        [only] = running
        arguments = {"input": str(only.source), "output": str(only.output)}
        return Job(job_managers, PROGRAMS / f"{only.example.name}.py", "program", arguments, **LIGHT)
    names = [each.example.name for each in running]
    with zipfile.ZipFile(root / "together.zip", "w") as archive:
        for name in ("together", *names):
            archive.write(PROGRAMS / f"{name}.py", f"{name}.py")
    arguments = {"names": ",".join(names), "input": str(root / "in"), "output": str(root / "out")}
    return Job(job_managers, root / "together.zip", "program", arguments, **LIGHT)


# --- input and output ------------------------------------------------------------------------------------------------


def moment(minute: int) -> str:
    return (NOON + datetime.timedelta(minutes=minute)).isoformat()


def lines(records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def rows(output: Path) -> list[dict[str, Any]]:
    """Return the rows that readers of Spark's file sink see: those of the files in its log."""
    found = []
    for path in logged(output):
        columns = dict(part.split("=") for part in path.parts if "=" in part)
        found += [{**columns, **json.loads(line)} for line in path.read_text().splitlines()]
    return found


def listed(output: Path) -> set[Path]:
    """Return the files that readers without the sink's log see."""
    found = {path.relative_to(output) for path in output.rglob("part-*")}
    return {output / path for path in found if not any(part.startswith(".") for part in path.parts)}


def counts(output: Path) -> Counter[str]:
    try:
        files = [file.read_text() for file in output.glob("part-*.json")]
    except FileNotFoundError:  # the table is just being replaced
        return Counter()
    records = (json.loads(line) for text in files for line in text.splitlines())
    return Counter({record["word"]: record["count"] for record in records})


def sessions(output: Path) -> list[tuple[str, int, int, int]]:
    def minute(at: int) -> int:
        return round((at / 1000 - NOON.timestamp()) / 60)

    return sorted((row["user"], minute(row["began"]), minute(row["ended"]), row["clicks"]) for row in rows(output))
