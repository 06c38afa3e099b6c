"""Pages of a long history: the server's response time for each, and the size of the first view.

A logged-in client requests the pages one after another through Django's middleware in this process, with a real
PostgreSQL server. The jobs are chosen evenly, and all code is loaded before. Each page has its elapsed time and the CPU
time of this process, which depends less on other work on the machine. One job has a history of 1,000 pages. The
pipeline creates all roll-ups before the measurement. At last, more jobs are added, and the fleet is measured again.
"""

from __future__ import annotations

import gzip
import multiprocessing
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.checkpoint_rows import Size, fill
from bench.figures import BenchmarkFailed, Figure
from bench.history import database
from bench.history_pipeline import pipeline

JOBS, MANY = 1_000, 10_000
SMALL, FULL = 500_000, 10_000_000
DEEP = 26_000  # checkpoints of one job
TRIES = 60
PAGE, THOUSANDTH = 25, 999
SCRAPES = 5


def measure(*, full: bool = False) -> list[Figure]:
    import psycopg

    with database() as dsn:
        from django.conf import settings

        settings.ALLOWED_HOSTS = ["testserver"]
        now = datetime.now(UTC)
        with psycopg.connect(dsn, autocommit=True) as connection:
            fill(connection, Size(JOBS, FULL if full else SMALL, end=now))
            fill(connection, Size(1, DEEP, end=now), seed=8)
            _roll_up_apart(dsn)
            connection.execute("VACUUM ANALYZE")
        _watched(now)
        client = _client()
        figures = [
            *_times(client),
            Figure(f"metrics of {JOBS:,} jobs", _metrics_ms(now), "ms", 200),
            Figure("first view without charts", _first_view_kb(client), "KB", 300),
        ]
        with psycopg.connect(dsn, autocommit=True) as connection:
            fill(connection, Size(MANY - JOBS - 1, 100 * MANY, end=now), seed=9)
            connection.execute("VACUUM ANALYZE")
        _watched(datetime.now(UTC))
        return [*figures, *_figures("fleet", f"{MANY:,} jobs", ["/"] * (TRIES // 2), 150, client.get)]


def _roll_up_apart(dsn: str) -> None:
    """Create the roll-ups in a separate process, so that modules and threads of Spark do not affect the pages."""
    process = multiprocessing.get_context("spawn").Process(target=_roll_up, args=(dsn,))
    process.start()
    process.join()
    if process.exitcode:
        raise BenchmarkFailed(f"the pipeline ended with {process.exitcode}")


def _roll_up(dsn: str) -> None:
    with pipeline(dsn) as roll_up:
        roll_up()


def _watched(now: datetime) -> None:
    """Mark all clusters as reachable, so that the pages compute the health of every job."""
    from monitoring.models import Cluster

    Cluster.objects.update(enabled=True, last_answer_at=now)


def _client() -> Any:
    from django.contrib.auth.models import User
    from django.test import Client

    import dashboard.wsgi  # noqa: F401 - loads all code, as in the web server

    client = Client(HTTP_ACCEPT_ENCODING="gzip")
    client.force_login(User.objects.create_superuser("bench"))
    return client


def _times(client: Any) -> list[Figure]:
    from monitoring.models import Job

    jobs = list(Job.objects.order_by("pk").values_list("pk", flat=True))
    deep, some = jobs[-1], jobs[:: max(1, len(jobs) // TRIES)][:TRIES]
    cursor = _cursor(deep)
    asked: list[tuple[str, str, Sequence[str], float]] = [
        ("fleet", f"{JOBS:,} jobs", ["/"] * (TRIES // 2), 100),
        ("fleet, 300 jobs shown", "", ["/?upto=6"] * (TRIES // 2), 300),
        ("overview", "", [f"/jobs/{pk}/" for pk in some], 100),
        ("history", "page 1", [f"/jobs/{pk}/history/" for pk in some], 100),
        ("history", "page 1,000", [f"/jobs/{deep}/history/?before={cursor}"] * TRIES, 100),
        ("summary of 30 days", "", [f"/jobs/{pk}/summary/?range=30d" for pk in some], 300),
        ("chart of 30 days", "usual", [f"/jobs/{pk}/charts/lanes.json?range=30d" for pk in some], 300),
        ("chart of 30 days", f"{DEEP:,} checkpoints", [f"/jobs/{deep}/charts/lanes.json?range=30d"] * TRIES, 300),
    ]
    return [figure for name, case, urls, goal in asked for figure in _figures(name, case, urls, goal, client.get)]


def _figures(
    name: str, case: str, urls: Sequence[str], goal: float, ask: Callable[[str], Any]
) -> tuple[Figure, Figure]:
    """Return the time in which 95 % of the URLs are answered, and the median processor time of this process."""
    ask(urls[0])  # compile templates and query plans first
    taken, worked = [], []
    for url in urls:
        began, work = time.perf_counter(), time.process_time()
        response = ask(url)
        taken.append((time.perf_counter() - began) * 1000)
        worked.append((time.process_time() - work) * 1000)
        if response.status_code != 200:
            raise RuntimeError(f"{url} answers {response.status_code}")
    return (
        Figure(name, quantiles(taken, n=20)[-1], "ms", goal, case=case),
        Figure(f"{name}, processor time", median(worked), "ms", case=case),
    )


def _cursor(job: int) -> str:
    """Return the cursor of page 1,000 of the job's history."""
    from dashboard.queries.history import Cursor
    from monitoring.models import Checkpoint

    rows = Checkpoint.objects.filter(run__job=job).order_by("-triggered_at", "-pk")
    at, pk = rows.values_list("triggered_at", "pk")[THOUSANDTH * PAGE - 1]
    return str(Cursor(at, pk)).replace("+", "%2B")


def _metrics_ms(now: datetime) -> float:
    """Return the processor time of this process for the metrics of all jobs, in milliseconds."""
    from monitoring.metrics import exposition
    from monitoring.selfwatch.own_facts import gather
    from monitoring.selfwatch.verdict import judge

    worked = []
    for _ in range(SCRAPES):
        work = time.process_time()
        facts = gather(now)
        exposition(facts, judge(facts, 60))
        worked.append((time.process_time() - work) * 1000)
    return median(worked)


def _first_view_kb(client: Any) -> float:
    """Return the compressed size of the fleet page and its static files, in KB."""
    page = client.get("/")
    html = gzip.decompress(page.content) if page.headers.get("Content-Encoding") == "gzip" else page.content
    named = set(re.findall(r'(?:src|href)="/static/([^"]+\.(?:js|css|svg|woff2))"', html.decode()))
    modules = {f"dashboard/js/{path.name}" for path in Path("dashboard/static/dashboard/js").glob("*.js")}
    files = [name for name in named | modules if "plotly" not in name]
    return (len(page.content) + sum(len(gzip.compress(_static(name))) for name in files)) / 1000


def _static(name: str) -> bytes:
    from django.contrib.staticfiles import finders

    plain = re.sub(r"\.[0-9a-f]{12}(?=\.\w+$)", "", name)
    path = finders.find(plain)
    if path is None:
        raise RuntimeError(f"{name} is not there")
    return Path(str(path)).read_bytes()
