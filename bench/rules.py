"""The time to evaluate more than 20 rules of all kinds for 10,000 jobs on one core, also while all jobs fail.

Each job has a run with an hour of checkpoints, one per minute. A pass evaluates one new checkpoint of every job. The
evaluating process has one core, and PostgreSQL is a real server. Times are elapsed times and include PostgreSQL.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from bench.figures import Figure

SIZES = (2_500, 5_000, 10_000)
PASSES = 3
BEGIN = datetime(2026, 11, 21, 12, tzinfo=UTC)

_CHECKPOINTS = """
INSERT INTO monitoring_checkpoint (run_id, checkpoint_id, status, is_savepoint, checkpoint_type, savepoint_format,
    triggered_at, latest_ack_at, failed_at, failure_message, end_to_end_duration, checkpointed_size, state_size,
    num_subtasks, num_acknowledged_subtasks, external_path, discarded, alignment_max, start_delay_max, final,
    first_seen_at)
SELECT r.id, %(first)s + k, 'COMPLETED', false, 'CHECKPOINT', '', at, at + interval '900 ms', NULL, '',
       900 + r.id %% 7, 1000000, 500000000 + r.id %% 1000, 4, 4, '', false, 12, 30, true, at
FROM monitoring_run r, generate_series(0, %(count)s - 1) k,
     LATERAL (SELECT %(since)s + k * interval '1 minute' + (r.id %% 60) * interval '1 second' AS at) t
"""
_CURRENT = """
UPDATE monitoring_job j SET current_run_id = r.id, created_at = %(at)s FROM monitoring_run r WHERE r.job_id = j.id
"""
_FAILURES = """
INSERT INTO monitoring_checkpoint (run_id, checkpoint_id, status, is_savepoint, checkpoint_type, savepoint_format,
    triggered_at, failed_at, failure_message, num_subtasks, num_acknowledged_subtasks, external_path, discarded, final,
    first_seen_at)
SELECT r.id, 100000 + k, 'FAILED', false, 'CHECKPOINT', '', %(at)s, %(at)s + k * interval '1 second',
       'Checkpoint expired before completing.', 4, 0, '', false, true, %(at)s
FROM monitoring_run r, generate_series(1, 3) k
"""


def measure() -> list[Figure]:
    from dashboard.stack.postgres import PostgresServer
    from dashboard.stack.process import running

    with tempfile.TemporaryDirectory(prefix="waymark-rules-", dir="/tmp") as directory:
        Path(directory).chmod(0o711)
        server = PostgresServer(Path(directory) / "pg")
        with running(server, log=Path(directory) / "postgres.log"):
            prepared(server.dsn())
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            return _figures()


def prepared(dsn: str) -> None:
    os.environ["DATABASE_URL"] = dsn
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def _figures() -> list[Figure]:
    from monitoring.models import AlertRule

    passes = {jobs: _steady(jobs) for jobs in SIZES}
    rules = AlertRule.objects.count()
    small, large = SIZES[0], SIZES[-1]
    storm, opened = _storm()
    dead, num_opened = _unreachable_cluster()
    return [
        *(Figure(f"evaluation of {rules} rules, by jobs", passes[jobs], "s", 2, case=f"{jobs:,}") for jobs in SIZES),
        Figure(f"time for {large / small:g} × the jobs", passes[large] / passes[small], "×", large / small * 1.1),
        Figure(f"all jobs fail: {opened:,} incidents", storm, "s", 5),
        Figure(f"their cluster fails: {num_opened} incident", dead, "s", 5),
    ]


def _steady(jobs: int) -> float:
    from monitoring.alerts.evaluation import evaluate_due

    _fill(jobs)
    _rules()
    now = BEGIN + timedelta(hours=1)
    evaluate_due(now)
    taken = []
    for number in range(PASSES):
        _checkpoints(now, 60 + number, 1)
        now += timedelta(minutes=1)
        _due()
        taken.append(_timed(lambda now=now: evaluate_due(now)))
    return median(taken)


def _storm() -> tuple[float, int]:
    from monitoring.alerts.evaluation import evaluate_due
    from monitoring.models import Incident

    _only_the_default_rules()
    now = BEGIN + timedelta(hours=1, minutes=10)
    _sql(_FAILURES, {"at": now - timedelta(seconds=30)})
    _due()
    before = Incident.objects.count()
    taken = _timed(lambda: evaluate_due(now))
    return taken, Incident.objects.count() - before


def _unreachable_cluster() -> tuple[float, int]:
    from monitoring.alerts.evaluation import evaluate_due
    from monitoring.models import Cluster, Incident, Outage, OutageKind

    now = BEGIN + timedelta(hours=1, minutes=20)
    silent = now - timedelta(seconds=90)
    cluster = Cluster.objects.get()
    Cluster.objects.update(unreachable_since=silent)
    Outage.objects.create(cluster=cluster, kind=OutageKind.NO_ANSWER, began_at=silent)
    _sql(_FAILURES.replace("100000", "200000"), {"at": now - timedelta(seconds=30)})
    _due()
    before = Incident.objects.count()
    taken = _timed(lambda: evaluate_due(now))
    return taken, Incident.objects.count() - before


def _fill(jobs: int) -> None:
    from monitoring.models import AlertRule, Cluster, Job, Run

    for table in ("job", "cluster", "alertrule", "channel"):
        _sql(f"TRUNCATE monitoring_{table} CASCADE")
    later = BEGIN + timedelta(days=30)
    cluster = Cluster.objects.create(name="bench", rest_url="http://127.0.0.1:1/", next_poll_at=later)
    made = [Job(cluster=cluster, name=f"job-{n}", labels={"team": f"team-{n % 20}"}) for n in range(jobs)]
    Job.objects.bulk_create(made, batch_size=2000)
    config = {"interval": 60_000, "timeout": 600_000, "tolerable_failed_checkpoints": 0}
    runs = [
        Run(
            job=job,
            number=1,
            engine_job_id=f"{job.pk:032x}",
            state="RUNNING",
            observed_at=BEGIN,
            started_at=BEGIN,
            checkpoint_config=config,
        )
        for job in made
    ]
    Run.objects.bulk_create(runs, batch_size=2000)
    _sql(_CURRENT, {"at": BEGIN})
    _checkpoints(BEGIN, 0, 60)
    _sql("ANALYZE")
    AlertRule.objects.all().delete()


def _checkpoints(since: datetime, first: int, count: int) -> None:
    _sql(_CHECKPOINTS, {"since": since, "first": first, "count": count})


def _rules() -> None:
    """Create a rule of each kind for all objects, and four rules with a label selector."""
    from monitoring.alerts.kinds import kinds
    from monitoring.models import AlertRule

    wide = [AlertRule(name=kind.title, kind=kind.name) for kind in kinds().values()]
    labels = [
        AlertRule(name=f"{kind} of a team", kind=kind, selector="team=team-7|team-8", severity="critical")
        for kind in ("failed_in_window", "no_completed_checkpoint", "end_to_end_duration", "state_size")
    ]
    AlertRule.objects.bulk_create([*wide, *labels])


def _only_the_default_rules() -> None:
    """Keep only the default rules, and add a channel, so that every incident writes a notification."""
    from monitoring.alerts.defaults import DEFAULTS
    from monitoring.models import AlertRule, Channel

    AlertRule.objects.exclude(kind__in=DEFAULTS, selector="").delete()
    Channel.objects.create(name="bench", kind="mail", settings={"to": ["ops@example.org"]})


def _due() -> None:
    from monitoring.models import AlertRule

    AlertRule.objects.update(next_check_at=None)


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _sql(statement: str, parameters: dict[str, object] | None = None) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
