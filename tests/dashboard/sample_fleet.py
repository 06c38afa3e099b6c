"""Scenes for pages: a fleet with problems, a job with slow checkpoints and a restart."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from monitoring import audit
from monitoring.launches import Launched, remember
from monitoring.models import (
    AttemptState,
    AutomationPause,
    ChangeKind,
    Checkpoint,
    Cluster,
    ConfigurationChange,
    Engine,
    IncidentEvent,
    IncidentEventKind,
    IncidentState,
    Job,
    JobConfiguration,
    LaunchOrigin,
    RestartDecision,
    Run,
    RunException,
    RunState,
    SavepointOrigin,
    SavepointState,
    Severity,
    StateRead,
    Tick,
    Verdict,
)
from monitoring.reasons.columns import columns
from monitoring.reasons.state_reads import StateReadReason
from monitoring.selfwatch.own_facts import periods
from tests.dashboard import builders as make
from tests.dashboard.builders import Shape
from tests.monitoring.savepoints import snapshots

# A checkpoint that a real Flink wrote, used as the last checkpoint of a dead run.
LEFT_BEHIND = "2.3.0-rocksdb-0b-checkpoint"
LONG_NAME = (
    "payments-dedup-with-a-very-long-name-that-somebody-generated-from-a-branch-2026-11-21-feature-exactly-once-sink"
)


def make_job_with_unlisted_checkpoint(now: datetime, cluster: Cluster, root: Path) -> Job:
    """Return a job with a lost run. Three checkpoints are in the history, and a fourth only in the run's directory."""
    job = make.make_job(cluster, "clicks-by-page")
    run = make.make_run(job, now, state=RunState.LOST, ended_at=now - timedelta(seconds=5))
    rows = make.make_checkpoints(run, now - timedelta(seconds=24), Shape(count=3, state_bytes=16_000))
    for row in rows:
        row.external_path = f"file:{root}/{run.engine_job_id}/chk-{row.checkpoint_id}"
        row.save(update_fields=["external_path"])
    snapshots.lay_down(LEFT_BEHIND, root / run.engine_job_id / "chk-4")
    return job


def make_busy_job(now: datetime, cluster: Cluster, name: str = "flights-by-route") -> Job:
    """Return a job with two runs: the first has slow and then failed checkpoints, an incident and a savepoint."""
    job = make.make_job(cluster, name, next_savepoint_at=now + timedelta(minutes=22), savepoints_kept=2)
    died = now - timedelta(minutes=14)
    first = make.make_run(
        job,
        now,
        age=timedelta(minutes=58),
        state=RunState.FAILED,
        ended_at=died,
        exception="java.net.ConnectException: Connection refused (sink, task 2)",
    )
    RunException.objects.create(
        run=first,
        at=died,
        name="org.apache.spark.SparkException",
        message="Job aborted due to stage failure: Task 2 in stage 118.0 failed 1 times",
        root_cause="Connection refused",
        stacktrace="org.apache.spark.SparkException: Job aborted\n\tat org.apache.spark.scheduler.DAG…",
        task="Sink: routes (2/4)",
        host="worker-3.example:40123",
        digest="1" * 32,
    )
    shape = Shape(
        count=210, slow=frozenset(range(3, 22)), failed=frozenset({0, 1, 2, 6, 11}), savepoints=frozenset({40})
    )
    old = make.make_checkpoints(first, died - timedelta(seconds=9), shape)
    make.make_operators(old[-120:])
    run = make.make_run(
        job,
        now,
        age=timedelta(minutes=13),
        restored_checkpoint_id=170,
        restored_is_savepoint=True,
        restored_path="file:/data/savepoints/savepoint-ae06e0-170",
        restored_at=now - timedelta(minutes=13),
    )
    fresh = make.make_checkpoints(
        run, now - timedelta(seconds=6), Shape(count=76, first_id=211, failed=frozenset({30})), 11
    )
    make.make_operators(fresh)
    started = ((first, make.LAUNCH | {"jar_id": "31d0_flights.py"}), (run, make.LAUNCH))
    for each, spec in started:
        remember([Launched(each, spec)], LaunchOrigin.FOUND, "", each.started_at)
    saved = make.make_savepoint(first, now - timedelta(minutes=21), checkpoint=old[169], path=old[169].external_path)
    by_hand = {
        "origin": SavepointOrigin.MANUAL,
        "requested_by": "olga",
        "pinned": True,
        "note": "Before the new routes.",
    }
    make.make_savepoint(run, now - timedelta(minutes=5), checked_at=now - timedelta(minutes=4), **by_hand)
    for hours in (3, 26, 50):
        make.make_savepoint(first, now - timedelta(hours=hours))
    missing = "file state/7.sst is missing (2 of 31 files)"
    make.make_savepoint(first, now - timedelta(hours=74), problem=missing, checked_at=now - timedelta(hours=2))
    gone = {"state": SavepointState.DISPOSED, "disposed_at": now, "disposal_reason": "number 9, 4 d old"}
    make.make_savepoint(first, now - timedelta(hours=98), **gone)
    make.make_savepoint(
        run,
        now - timedelta(minutes=9),
        state=SavepointState.FAILED,
        path="",
        size=None,
        completed_at=None,
        failure="Checkpoint expired before completing (60 s): subtask 2 of aggregate did not answer.",
    )
    rule = make.make_rule(job, last_checked_at=now - timedelta(seconds=40))
    channel = make.make_channel(f"on-call {name[:60]}")
    rule.channels.add(channel)
    incident = make.make_incident(rule, now - timedelta(minutes=15))
    make.make_delivery(incident, channel, now - timedelta(minutes=15))
    make.make_attempt(
        job,
        now - timedelta(minutes=13, seconds=30),
        savepoint=saved,
        old_run=first,
        new_run=run,
        restore_path=saved.path,
    )
    _reconfigured(job, run, now - timedelta(minutes=13))
    audit.record("olga", "savepoint.request", f"job {name}", "by hand")
    return job


def _reconfigured(job: Job, run: Run, at: datetime) -> None:
    JobConfiguration.objects.create(job=job, parts={}, since=at)
    changed = [
        ("checkpointing", "interval", ChangeKind.CHANGED, 30_000, 10_000),
        ("checkpointing", "externalization.delete_on_cancellation", ChangeKind.CHANGED, True, False),
        (
            "execution",
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
            ChangeKind.ADDED,
            None,
            "true",
        ),
        ("operators", "aggregate by aircraft and route", ChangeKind.CHANGED, 2, 4),
        ("operators", "filter cancelled flights", ChangeKind.REMOVED, 2, None),
    ]
    for part, key, kind, before, after in changed:
        ConfigurationChange.objects.create(
            job=job, run=run, at=at, part=part, key=key, kind=kind, before=before, after=after
        )


def ticks(now: datetime) -> None:
    """Store the last executions of the periodic tasks, of which one has failed."""
    text = {"poll_clusters": "eu-prod: orders-enrich run 3 is FAILED (OutOfMemoryError: Java heap space)."}
    for number, task in enumerate(periods()):
        Tick.objects.create(
            task=task,
            worker="waymark-1:4127",
            ended_at=now - timedelta(seconds=number),
            took_ms=9 + 31 * number,
            runs=86_400 // (number + 1),
            sentence=text.get(task, ""),
            said_at=now - timedelta(minutes=2) if task in text else None,
        )
    failing = {"failed_at": now, "failure": "NotPinged: WAYMARK_DEAD_MAN_URL answered HTTP 404", "failures": 12}
    Tick.objects.filter(task="ping_dead_man").update(ended_at=now - timedelta(minutes=12), **failing)


def make_troubled_fleet(now: datetime, jobs: int = 24) -> list[Job]:
    """Create three clusters, one of them unreachable, with mostly healthy jobs. The first job is `make_busy_job`."""
    ours = make.make_cluster(now)
    flink = make.make_cluster(now, "eu-prod", engine=Engine.FLINK)
    silent = make.make_cluster(
        now,
        "apac",
        engine=Engine.FLINK,
        unreachable_since=now - timedelta(minutes=9),
        last_answer_at=now - timedelta(minutes=9),
        consecutive_failures=41,
        last_error="ConnectTimeout: apac.example:8081 did not answer within 5 s",
    )
    made = [make_busy_job(now, ours)]
    made.append(_failed_job(now, flink))
    made.append(_slow_job(now, flink))
    names = ["clicks-sessions", "fraud-scores", "inventory-cdc", "search-index", "iot-rollup", "ad-attribution"]
    for n in range(jobs - len(made)):
        cluster = (ours, flink, silent)[0 if n % 7 < 3 else 1 if n % 7 < 6 else 2]
        made.append(make_healthy_job(now, cluster, f"{names[n % len(names)]}-{n // len(names) + 1}", seed=n))
    return made


def make_healthy_job(now: datetime, cluster: Cluster, name: str, seed: int = 1, count: int = 45) -> Job:
    job = make.make_job(cluster, name, auto_restart=seed % 3 != 0)
    seen = cluster.unreachable_since or now - timedelta(seconds=2)
    run = make.make_run(job, now, age=timedelta(hours=5 + seed), observed_at=seen)
    shape = Shape(
        count=count,
        base_ms=200 + 170 * (seed % 9),
        state_bytes=90_000_000 * (1 + seed % 13),
        every=timedelta(seconds=30),
    )
    shape = Shape(**{**shape.__dict__, "failed": frozenset({12}) if seed % 8 == 5 else frozenset()})
    run.checkpoint_config = make.config(30_000)
    run.save(update_fields=["checkpoint_config"])
    make.make_checkpoints(run, min(seen, now - timedelta(seconds=seed % 28)), shape, seed)
    if seed % 4 != 3:
        make.make_savepoint(run, now - timedelta(minutes=38 + 7 * seed))
    return job


def _failed_job(now: datetime, cluster: Cluster) -> Job:
    job = make.make_job(cluster, "orders-enrich")
    run = make.make_run(
        job,
        now,
        state=RunState.FAILED,
        ended_at=now - timedelta(seconds=40),
        exception="OutOfMemoryError: Java heap space",
    )
    make.make_checkpoints(run, now - timedelta(minutes=11), Shape(count=50, failed=frozenset({0, 1, 2, 3})), 5)
    RestartDecision.objects.create(
        job=job,
        at=now - timedelta(seconds=30),
        verdict=Verdict.RESTART,
        reason="orders-enrich has been FAILED since 12:00:01 UTC.",
        facts={"run_state": "FAILED", "automatic_restarts": [], "deaths_nearby": 1},
    )
    AutomationPause.objects.create(
        cluster=cluster, reason="Disks are replaced.", author="olga", started_at=now - timedelta(minutes=9)
    )
    rule = make.make_rule(job, severity=Severity.CRITICAL)
    make.make_incident(rule, now - timedelta(minutes=2), severity=Severity.CRITICAL)
    silent = [{"place": f"s3://flink-checkpoints/flights/{run.engine_job_id}", "waited_s": 5.0}]
    make.make_attempt(job, now - timedelta(seconds=30), AttemptState.WAITING, old_run=run, silent=silent)
    return job


def _slow_job(now: datetime, cluster: Cluster) -> Job:
    job = make.make_job(cluster, LONG_NAME)
    run = make.make_run(job, now, age=timedelta(days=3))
    make.make_checkpoints(
        run,
        now - timedelta(minutes=2, seconds=10),
        Shape(count=80, base_ms=5200, slow=frozenset(range(8)), state_bytes=18_000_000_000),
        9,
    )
    make.make_savepoint(run, now - timedelta(hours=1, minutes=12), size=18_000_000_000)
    rule = make.make_rule(job)
    incident = make.make_incident(
        rule, now - timedelta(hours=30), state=IncidentState.RESOLVED, resolved_at=now - timedelta(hours=29)
    )
    IncidentEvent.objects.create(
        incident=incident,
        at=now - timedelta(hours=29),
        kind=IncidentEventKind.RESOLVED,
        text="No failed checkpoint for 15 min.",
    )
    return job


def make_state_reads(job: Job, now: datetime) -> None:
    """Store the contents of the newest checkpoint, a search with results, a diff, and a waiting request."""
    snapshot = Checkpoint.objects.filter(run__job=job, status="COMPLETED", operators__isnull=False).first()
    assert snapshot is not None
    sizes = [412_000, 398_000, 2_910_000, 405_000, 421_000, 377_000, 409_000, 390_000]
    partitions = [{"index": n, "files": 3, "bytes": size, "rows": size // 96} for n, size in enumerate(sizes)]
    views = [
        {"name": "seats", "kind": "value", "has_ttl": True},
        {"name": "by_route", "kind": "map", "has_ttl": False},
        {"name": "timers", "kind": "timers", "has_ttl": False},
    ]
    keyed = {"query": "flights", "number": 0, "name": make.VERTICES[1][0], "views": views, "partitions": partitions}
    states = [{"name": "offsets", "mode": "split", "elements": [[{"file": "2013-01.csv", "row": 81_204}], []]}]
    holder = {"query": "flights", "holder": "writer", "parallelism": 2, "states": states}
    routes = [f"{a}-{b}" for a in ("EWR", "JFK", "LGA") for b in ("ATL", "ORD", "LAX", "MIA")]
    rows = [
        {
            "partition": n % 8,
            "key": {"route": route, "tail": f"N{n}33JB"},
            "map_key": None,
            "value": {"seats": 120 + n, "seen": "2013-01-05T14:02:36Z"},
            "expires_at": round((now + timedelta(hours=n)).timestamp() * 1000),
        }
        for n, route in enumerate(routes)
    ]
    changed = [
        {"change": "changed", "key": {"route": "EWR-ATL"}, "map_key": None, "before": 118, "after": 120},
        {"change": "added", "key": {"route": "LGA-MIA"}, "map_key": None, "before": None, "after": 4},
    ]
    counts = {"added": 1, "removed": 0, "changed": 1, "unchanged": 41_200}
    place = {
        "job": job,
        "snapshot": snapshot.pk,
        "location": snapshot.external_path,
        **columns("label", StateReadReason.CHECKPOINT(number=286, run=2)),
    }
    where = {
        "query": "flights",
        "operator": 0,
        "view": "seats",
        "asked_by": "olga",
        **columns("other_label", StateReadReason.SAVEPOINT(number=170, run=1)),
    }
    done = {"state": "done", "started_at": now, "ended_at": now + timedelta(seconds=9)}
    for ago, kind, fields in (
        (90, "list", {**done, "answer": {"keyed": [keyed], "operator_state": [holder]}}),
        (80, "diff", {**done, "answer": counts | {"sample": changed}}),
        (70, "sizes", {**done, "answer": {"partitions": partitions}}),
        (60, "read", {**done, "contains": "N", "answer": {"rows": rows, "is_truncated": True}}),
        (5, "read", {"state": "running", "started_at": now, "claimed_until": now + timedelta(minutes=9)}),
    ):
        StateRead.objects.create(**place, **where, kind=kind, asked_at=now - timedelta(seconds=ago), **fields)
