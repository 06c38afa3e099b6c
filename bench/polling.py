"""Polling of many clusters with one worker process on one core, compared with plain GET requests.

`polling_engines` simulates 10 clusters (50 with `--full`) with Flink's REST API. Each has 200 jobs with a checkpoint
every 60 s, and is polled every 10 s. The worker has one core; the simulation and PostgreSQL have the other one.

The benchmark measures four phases. The worker reads all histories. Then it polls in the steady state. Then all clusters
are due at once. In the last phase, one in ten clusters accepts connections but never responds.

The ratios compare requests per CPU second with plain concurrent GET requests of aiohttp, for the same mix of responses
on the same core. In the steady state, the GET requests come in the same bursts over the same number of connections, so
both processes wait and wake equally often. In the burst, all clusters become due about one interval after their last
poll. The burst ends when no requests are left. Its GET requests follow without a pause. The GET requests run while the
worker pauses, right after the phase with which they are compared, because the speed of a machine varies over time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench.figures import BenchmarkFailed, Figure
from bench.polling_engines import COUNT, SOURCE, Plan, arguments
from bench.polling_worker import Flight
from dashboard.stack.postgres import PostgresServer
from dashboard.stack.process import running

JOBS = 200
OPERATORS = (SOURCE, COUNT)
FULL_CLUSTERS, CLUSTERS = 50, 10
FULL_S, SHORT_S = 40.0, 40.0
# The number of checkpoints in the history of each job at the start. The worker reads all of them before measurements.
FULL_BEFORE, BEFORE = 4, 10
TICK_S = 10.0
READ_EVERY_S = 10.0
PLAIN_S = 8.0
AT_ONCE = 8  # concurrent requests to one cluster, as by default in Waymark
# Seconds: a pause without polls, until its last requests have ended, and until polls are spread over 10 s again.
PAUSE_S, SETTLED_AFTER_S, AS_BEFORE_AFTER_S = 35.0, 6.0, 20.0
# A burst is over after this time without requests. The next tick of a cluster is at least 5 s later.
OVER_AFTER_S = 0.5
BURST_LIMIT_S = 120.0
# Limits to read the histories: CPU seconds of the worker, and elapsed seconds, which depend on other work.
READ_LIMIT_S, READ_WITHIN_S = 300.0, 3600.0
# A checkpoint that completed less than this time before the end of a span may have no row yet.
STORED_WITHIN_S = 20.0

_MARK = """
ALTER TABLE monitoring_checkpoint ADD COLUMN bench_completed_at timestamptz;
CREATE FUNCTION bench_mark() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NEW.bench_completed_at = clock_timestamp(); RETURN NEW; END $$;
CREATE TRIGGER bench_inserted BEFORE INSERT ON monitoring_checkpoint FOR EACH ROW
    WHEN (NEW.status = 'COMPLETED') EXECUTE FUNCTION bench_mark();
CREATE TRIGGER bench_updated BEFORE UPDATE ON monitoring_checkpoint FOR EACH ROW
    WHEN (NEW.status = 'COMPLETED' AND OLD.status <> 'COMPLETED') EXECUTE FUNCTION bench_mark();
"""
_STORED = """
SELECT r.engine_job_id, c.checkpoint_id, extract(epoch FROM c.bench_completed_at) * 1000, c.final
FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id WHERE c.status = 'COMPLETED'
"""


@dataclass(frozen=True)
class Span:
    """The work of the worker during `seconds`."""

    seconds: float
    cpu_s: float
    counts: dict[str, int]
    started_ms: int
    ended_ms: int

    @property
    def requests(self) -> int:
        return sum(self.counts.values())

    @property
    def polls(self) -> int:
        return self.counts.get("checkpoints", 0)


def measure(full: bool = False) -> list[Figure]:
    clusters, span_s, before = (FULL_CLUSTERS, FULL_S, FULL_BEFORE) if full else (CLUSTERS, SHORT_S, BEFORE)
    plan = Plan(clusters, JOBS, origin_ms=_now_ms(), before=before)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})  # for all processes that are started from here, except the worker
    try:
        with tempfile.TemporaryDirectory(prefix="waymark-bench-", ignore_cleanup_errors=True) as name:
            Path(name).chmod(0o755)
            return _measure(plan, span_s, cores[0], Path(name))
    finally:
        os.sched_setaffinity(0, cores)


def _measure(plan: Plan, span_s: float, core: int, root: Path) -> list[Figure]:
    server = PostgresServer(root / "pg")
    with running(server, log=root / "postgres.log"), _simulated_clusters(plan) as ports:
        dsn = server.dsn()
        _prepare(dsn, ports)
        with _worker(dsn, core, root / "worker.log") as worker:
            started = time.monotonic()
            _wait_until_read(dsn, plan, worker)
            first_sight_s, first_sight_cpu_s = time.monotonic() - started, _cpu(worker)
            steady = _span(worker, ports, span_s)
            memory = worker.memory_info().rss
            plain = _measure_while_paused(dsn, lambda: _plain(_flights(plan, ports, steady), core, paced=True))
            burst = _burst(dsn, worker, plan, ports)
            plain_burst = _measure_while_paused(dsn, lambda: _plain(_flights(plan, ports, burst), core, paced=False))
            hanging = plan.clusters // 10
            for port in ports[:hanging]:
                _get_json(port, "/_hang")
            time.sleep(12)  # until the first requests to them have timed out
            hung = _span(worker, ports, span_s)
        stored = _stored(dsn)
    return [
        *_pace(plan, steady, plain),
        *_saturated(burst, plain_burst),
        Figure("first poll of all checkpoints", first_sight_s, "s"),
        Figure("processor time of it with the start", first_sight_cpu_s, "s"),
        *_figures(plan, steady, hung, memory, stored, hanging),
    ]


def _pace(plan: Plan, steady: Span, plain: float) -> list[Figure]:
    wanted = plan.clusters * JOBS / READ_EVERY_S
    rate = steady.requests / steady.cpu_s
    return [
        Figure(f"job polls due, {plan.clusters} clusters of {JOBS} jobs", wanted, "/s"),
        Figure("job polls", steady.polls / steady.seconds, "/s", goal=wanted * 0.99, at_most=False),
        Figure("core of the worker", 100 * steady.cpu_s / steady.seconds, "%"),
        Figure("job polls per processor-second", steady.polls / steady.cpu_s, "/s", 2000, False),
        Figure("requests per processor-second", rate, "/s"),
        Figure("plain GETs per processor-second at this pace", plain, "/s"),
        Figure("ratio at this pace", rate / plain, "×"),
    ]


def _saturated(burst: Span, plain: float) -> list[Figure]:
    rate = burst.requests / burst.cpu_s
    return [
        Figure("all due at once: job polls per processor-second", burst.polls / burst.cpu_s, "/s"),
        Figure("all due at once: requests per processor-second", rate, "/s"),
        Figure("plain GETs per processor-second without a pause", plain, "/s"),
        Figure("ratio without a pause", rate / plain, "×"),
    ]


def _figures(
    plan: Plan,
    steady: Span,
    hung: Span,
    memory: int,
    stored: dict[str, dict[int, float]],
    hanging: int,
) -> list[Figure]:
    answering = (plan.clusters - hanging) * JOBS / READ_EVERY_S
    everywhere, others = range(plan.clusters), range(hanging, plan.clusters)
    seen, missed = _detection_delays(plan, stored, steady, everywhere)
    seen_hung, missed_hung = _detection_delays(plan, stored, hung, others)
    return [
        Figure("completed checkpoints", len(seen) + missed, ""),
        Figure("checkpoints without a row", missed, "", goal=0, case="usual"),
        Figure("completion to row, median", _percentile(seen, 0.5), "s"),
        Figure("completion to row, 95 %", _percentile(seen, 0.95), "s", goal=12, case="usual"),
        Figure("memory of the worker", memory / 2**20, "MiB", goal=400),
        Figure(f"job polls of the others, {hanging} hang", hung.polls / hung.seconds, "/s", answering * 0.99, False),
        Figure("checkpoints without a row", missed_hung, "", goal=0, case=f"{hanging} hang"),
        Figure("completion to row, 95 %", _percentile(seen_hung, 0.95), "s", goal=12, case=f"{hanging} hang"),
    ]


def _detection_delays(
    plan: Plan, stored: dict[str, dict[int, float]], span: Span, clusters: range
) -> tuple[list[float], int]:
    """Return the seconds from completion to row for checkpoints that ended in the span, and how many have no row."""
    seen, missed = [], 0
    for number in clusters:
        for job in plan.cluster(number):
            rows = stored.get(job.id, {})
            for one in range(job.completed(span.started_ms) + 1, job.completed(span.ended_ms) + 1):
                if one in rows:
                    seen.append((rows[one] - job.ended_ms(one)) / 1000)
                else:
                    missed += 1
    return seen, missed


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


# --- what is measured ------------------------------------------------------------------------------------------------


def _span(worker: psutil.Process, ports: list[int], seconds: float, settle_s: float = STORED_WITHIN_S) -> Span:
    counts, cpu, started, started_ms = _request_counts(ports), _cpu(worker), time.monotonic(), _now_ms()
    time.sleep(seconds)
    done = {kind: count - counts.get(kind, 0) for kind, count in _request_counts(ports).items()}
    took, ended_ms = time.monotonic() - started, _now_ms()
    used = _cpu(worker) - cpu
    time.sleep(settle_s)
    return Span(took, used, done, started_ms, ended_ms)


def _measure_while_paused(dsn: str, measured: Callable[[], float]) -> float:
    """Return the result of `measured`, which runs while the worker pauses. Then wait until polls are spread again."""
    _postpone_polls(dsn, PAUSE_S)
    deadline = time.monotonic() + PAUSE_S
    time.sleep(SETTLED_AFTER_S)
    found = measured()
    if time.monotonic() > deadline:
        raise BenchmarkFailed(f"what is done in a standstill took longer than {PAUSE_S - SETTLED_AFTER_S:g} s")
    time.sleep(deadline - time.monotonic() + AS_BEFORE_AFTER_S)
    return found


def _postpone_polls(dsn: str, after_s: float) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(f"UPDATE monitoring_cluster SET next_poll_at = now() + interval '{after_s} seconds'")


def _burst(dsn: str, worker: psutil.Process, plan: Plan, ports: list[int]) -> Span:
    """Make all jobs due at once, and return the span until the worker has read every job and its figures."""
    _postpone_polls(dsn, READ_EVERY_S)
    time.sleep(READ_EVERY_S)
    jobs = plan.clusters * JOBS
    before, cpu, started, started_ms = _request_counts(ports), _cpu(worker), time.monotonic(), _now_ms()
    done: dict[str, int] = {}
    busy_at = started
    while (now := time.monotonic()) < started + BURST_LIMIT_S:
        latest = {
            kind: count - before.get(kind, 0) for kind, count in _request_counts(ports).items() if kind != "cluster"
        }
        busy_at = busy_at if latest == done else now
        done = latest
        if now - busy_at > OVER_AFTER_S and done.get("checkpoints", 0) >= jobs:
            break
        time.sleep(OVER_AFTER_S / 10)
    return Span(busy_at - started, _cpu(worker) - cpu, done, started_ms, _now_ms())


def _plain(flights: list[Flight], core: int, *, paced: bool) -> float:
    """Return the number of plain GET requests per CPU second."""
    given = {"flights": flights, "every_s": TICK_S if paced else 0, "at_once": AT_ONCE}
    done = subprocess.run(
        [sys.executable, "-m", "bench.polling_worker", "plain"],
        input=json.dumps({**given, "seconds": 2 * TICK_S if paced else PLAIN_S}),
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    answers, cpu_s = json.loads(done.stdout)
    return answers / cpu_s


def _flights(plan: Plan, ports: list[int], span: Span) -> list[Flight]:
    """Return the worker's requests to each cluster in the span, in its order: the list, every job, then figures."""
    flights = []
    details, subtasks = (span.counts.get(kind, 0) / max(1, span.polls) for kind in ("details", "subtasks"))
    for number, port in enumerate(ports):
        at = f"http://127.0.0.1:{port}/jobs"
        jobs = [(f"{at}/{job.id}/checkpoints", job.completed(_now_ms())) for job in plan.cluster(number)]
        newest = [f"{url}/details/{one}" for url, one in jobs]
        flights.append(
            [
                [[f"{at}/overview"]],
                [[url] for url, _ in jobs],
                [[url] for url in _share(newest, details)],
                [[f"{url}/subtasks/{each}" for each in OPERATORS] for url in _share(newest, subtasks / len(OPERATORS))],
            ]
        )
    return flights


def _share(urls: list[str], share: float) -> list[str]:
    return urls[: round(share * len(urls))]


def _stored(dsn: str) -> dict[str, dict[int, float]]:
    """Return when each row became COMPLETED, in epoch ms by job and checkpoint id, for rows with all figures."""
    stored: dict[str, dict[int, float]] = {}
    with psycopg.connect(dsn) as connection:
        for job_id, checkpoint_id, at_ms, final in connection.execute(_STORED):
            if final:
                stored.setdefault(job_id, {})[checkpoint_id] = float(at_ms)
    return stored


def _wait_until_read(dsn: str, plan: Plan, worker: psutil.Process) -> None:
    """Wait until the worker has read the whole history of every job, with all figures."""
    deadline = time.monotonic() + READ_WITHIN_S
    with psycopg.connect(dsn, autocommit=True) as connection:
        while _cpu(worker) < READ_LIMIT_S and time.monotonic() < deadline:
            time.sleep(1)
            row = connection.execute(
                "SELECT count(*) FILTER (WHERE final), count(*) FILTER (WHERE NOT final AND status <> 'IN_PROGRESS')"
                " FROM monitoring_checkpoint"
            ).fetchone()
            if row and row[0] >= plan.clusters * JOBS * min(plan.before, plan.history - 1) and row[1] < plan.clusters:
                return
    raise SystemExit(f"The histories were not read within {READ_LIMIT_S:g} processor seconds.")


# --- what takes part -------------------------------------------------------------------------------------------------


@contextmanager
def _simulated_clusters(plan: Plan) -> Iterator[list[int]]:
    process = subprocess.Popen([sys.executable, *arguments(plan)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(10)


def _prepare(dsn: str, ports: list[int]) -> None:
    environ = {**os.environ, "DATABASE_URL": dsn}
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], env=environ, check=True)
    with psycopg.connect(dsn) as connection:
        connection.execute(_MARK)
    add = (
        "from monitoring.models import Cluster\n"
        f"for n, p in enumerate({ports}): "
        f"Cluster.objects.create(name=f'played-{{n:02}}', rest_url=f'http://127.0.0.1:{{p}}', poll_interval_s={TICK_S})"
    )
    subprocess.run([sys.executable, "manage.py", "shell", "--verbosity", "0", "-c", add], env=environ, check=True)


@contextmanager
def _worker(dsn: str, core: int, log: Path) -> Iterator[psutil.Process]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.polling_worker", "poll"],
            env={**os.environ, "DATABASE_URL": dsn, "WAYMARK_LOG_LEVEL": "WARNING"},
            stdout=output,
            stderr=output,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)
        print(log.read_text(errors="replace")[-4000:], end="", file=sys.stderr)


def _request_counts(ports: list[int]) -> dict[str, int]:
    counts: dict[str, int] = _get_json(ports[-1], "/_asked")
    return {kind: count for kind, count in counts.items() if kind != "hung"}


def _get_json(port: int, path: str) -> Any:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{port}{path}") as answer:
        return json.load(answer)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
