"""Exactly-once under fire: real Spark, real job managers, a real PostgreSQL, and random faults.

The seed of the run (tests/profile.py) decides the faults. Each sink is tested with tasks in the driver and, as
`SINK@cluster`, with tasks in executors of a Spark cluster, which may be killed too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from dashboard.stack.ports import any_free
from tests.chaos.cluster import Job, JobManagers
from tests.chaos.faults import FAULTS, ON_A_CLUSTER, Fault, Target
from tests.chaos.under_fire import Feeder, ReadIds, run_rounds
from tests.checkpointing.spark.standalone_cluster import StandaloneCluster
from tests.profile import PROFILE, SEED
from tests.waiting import eventually

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.timeout(7200),
]

PROGRAM = Path(__file__).parent / "programs.py"
ROUNDS = PROFILE.chaos_rounds
TABLE = "under_fire"


def drawn(chance: random.Random, rounds: int, kinds: Sequence[Fault]) -> list[Fault]:
    """Return random faults. Each kind occurs equally often, with a difference of at most one."""
    bags = [chance.sample(kinds, len(kinds)) for _ in range(rounds // len(kinds) + 1)]
    return [fault for bag in bags for fault in bag][:rounds]


@pytest.fixture
def cluster(place: str, tmp_path: Path, java_home: Path) -> Iterator[StandaloneCluster | None]:
    if place != "cluster":
        yield None
        return
    (tmp_path / "cluster").mkdir()
    started = StandaloneCluster(tmp_path / "cluster", any_free())
    try:
        started.start(workers=2)
        yield started
    finally:
        started.stop()


@pytest.mark.parametrize(("sink", "place"), [tuple(each.split("@")) for each in PROFILE.chaos_sinks])
def test_every_row_is_in_the_result_exactly_once(
    sink: str,
    cluster: StandaloneCluster | None,
    job_managers: JobManagers,
    postgres_dsn: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(SEED)

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"  {sink}: {line}", flush=True)

    conf = {"spark.sql.files.openCostInBytes": "0"}  # many small files need only a few tasks
    if cluster is None:
        faults = drawn(chance, ROUNDS, FAULTS)
    else:  # the first fault is always one that needs a cluster
        first = chance.choice(ON_A_CLUSTER)
        faults = [first, *drawn(chance, ROUNDS - 1, (*FAULTS, *ON_A_CLUSTER))]
        conf |= {"spark.master": cluster.master, "spark.executor.memory": "500m"}
    say(f"seed {SEED}: {', '.join(fault.__name__ for fault in faults)}")
    (tmp_path / "in").mkdir()
    (tmp_path / "connections.json").write_text(json.dumps({"database": postgres_dsn}))
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
    paths = {"input": "in", "poison": "poison", "connections": "connections.json", "output": "out"}
    arguments = {name: str(tmp_path / path) for name, path in paths.items()}
    job = Job(job_managers, PROGRAM, f"to_{sink}", {**arguments, "table": TABLE}, **conf)
    target = Target(job_managers, job, tmp_path / "poison", chance, cluster)
    try:
        for read in readers(sink, postgres_dsn, tmp_path / "out")[:1]:
            run_rounds(faults, target, Feeder(tmp_path / "in", chance), read, say)
        check_all_agree(readers(sink, postgres_dsn, tmp_path / "out"))
    except AssertionError:
        say(f"the job's exceptions:\n{job.exceptions()}")
        raise
    finally:
        keep_logs(job)
    job.cancel()


def readers(sink: str, dsn: str, output: Path) -> list[ReadIds]:
    all_readers: dict[str, Callable[[], list[int]]] = {
        "postgres": lambda: ids_in_table(dsn),
        "files": lambda: ids_in_files(output),
    }
    return [read for name, read in all_readers.items() if sink in (name, "both")]


def check_all_agree(reads: list[ReadIds]) -> None:
    """Wait until all sinks have the same rows, because the sinks get the last batch one after another."""
    eventually("all sinks have the same rows", lambda: len({tuple(sorted(read())) for read in reads}) == 1)


def ids_in_table(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        try:
            return [number for (number,) in connection.execute(f"SELECT id FROM {TABLE}").fetchall()]
        except psycopg.errors.UndefinedTable:
            return []


def ids_in_files(output: Path) -> list[int]:
    """Return the ids in the files of a directory. If batches appear or disappear meanwhile, read it again."""
    while True:
        before = sorted(output.glob("waymark_batch=*"))
        try:
            files = [file for directory in before for file in directory.glob("*.json")]
            found = [json.loads(line)["id"] for file in files for line in file.read_text().splitlines()]
        except FileNotFoundError:
            continue
        if sorted(output.glob("waymark_batch=*")) == before:
            return found


def keep_logs(job: Job) -> None:
    """Copy the driver logs, so that the cause of a failed round can be found."""
    kept = Path("var") / "test" / "chaos" / job.id
    kept.mkdir(parents=True, exist_ok=True)
    for log in job.directory.glob("attempt-*/driver.log"):
        (kept / f"{log.parent.name}.log").write_bytes(log.read_bytes())
