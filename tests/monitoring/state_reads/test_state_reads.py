"""Reads of a snapshot's state: permissions, one read at a time, and failing reader processes."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from monitoring.models import AuditEntry, Checkpoint, Engine, Job, StateRead, StateReadKind, StateReadState
from monitoring.reasons.reason import Reason
from monitoring.reasons.state_reads import StateReadReason
from monitoring.reasons.work import WorkReason
from monitoring.state_reads import answering
from monitoring.state_reads.answering import arguments, run_next_read
from monitoring.state_reads.queries import (
    KEPT_A_JOB,
    KEPT_FOR,
    StateQuery,
    StateReadRefused,
    snapshot_of,
    snapshots,
    store_query,
)
from tests.dashboard import builders as make
from tests.monitoring.reported import done
from tests.waiting import eventually

pytestmark = pytest.mark.django_db
LIST = StateQuery(StateReadKind.LIST)
NO_VIEW = StateReadReason.NOT_READ(problem="no such view")


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=5, failed=frozenset({1})))
    return job


@pytest.fixture
def snapshot(job: Job) -> Checkpoint:
    return snapshots(job)[0]


@pytest.fixture
def reader(tmp_path: Path, settings: Any) -> Any:
    """Return a function that replaces manage.py by a script, as in `reader(script)`."""
    settings.BASE_DIR = tmp_path

    def write(script: str) -> None:
        (tmp_path / "manage.py").write_text(script)

    return write


def test_only_completed_snapshots_of_the_job_itself_are_offered(job: Job, now: datetime) -> None:
    Checkpoint.objects.filter(run__job=job, checkpoint_id=1).update(discarded=True)
    assert [each.checkpoint_id for each in snapshots(job)] == [5, 3, 2]
    other = make.make_run(make.make_job(job.cluster, "other"), now)
    (foreign,) = make.make_checkpoints(other, now, make.Shape(count=1))
    failed = Checkpoint.objects.get(run__job=job, status="FAILED")
    assert snapshot_of(job, foreign.pk) is None
    assert snapshot_of(job, failed.pk) is None
    with pytest.raises(StateReadRefused, match="does not belong to this job"):
        store_query(job, Checkpoint.objects.select_related("run").get(pk=foreign.pk), LIST, "olga", now)


def test_flinks_state_is_not_read(job: Job) -> None:
    job.cluster.engine = Engine.FLINK
    assert snapshots(job) == []
    assert snapshot_of(job, Checkpoint.objects.filter(status="COMPLETED").latest("pk").pk) is None


def test_the_same_question_twice_is_one_row_and_each_is_audited(job: Job, snapshot: Checkpoint, now: datetime) -> None:
    first = store_query(job, snapshot, LIST, "olga", now)
    assert store_query(job, snapshot, LIST, "otto", now).pk == first.pk
    store_query(job, snapshot, StateQuery(StateReadKind.READ, view="default"), "olga", now)
    assert AuditEntry.objects.filter(action="state.read", actor="olga").count() == 2


def test_too_many_questions_are_refused(job: Job, snapshot: Checkpoint, now: datetime) -> None:
    for number in range(20):
        store_query(job, snapshot, StateQuery(StateReadKind.READ, most=number + 1), "olga", now)
    with pytest.raises(StateReadRefused, match="20 requests are already queued"):
        store_query(job, snapshot, LIST, "olga", now)


def test_old_answers_are_forgotten(job: Job, snapshot: Checkpoint, now: datetime) -> None:
    for number in range(KEPT_A_JOB + 5):
        store_query(job, snapshot, StateQuery(StateReadKind.READ, most=number + 1), "olga", now)
        StateRead.objects.update(state=StateReadState.DONE)
    assert StateRead.objects.count() == KEPT_A_JOB
    store_query(job, snapshot, LIST, "olga", now + KEPT_FOR + timedelta(seconds=1))
    assert StateRead.objects.count() == 1


def test_two_never_run_at_once(job: Job, snapshot: Checkpoint, now: datetime) -> None:
    first = store_query(job, snapshot, LIST, "olga", now)
    second = store_query(job, snapshot, StateQuery(StateReadKind.READ), "olga", now)
    running = {"state": StateReadState.RUNNING, "claimed_until": now + timedelta(minutes=1), "started_at": now}
    StateRead.objects.filter(pk=first.pk).update(**running)
    assert run_next_read(now) is None
    with pytest.raises(IntegrityError), transaction.atomic():
        StateRead.objects.filter(pk=second.pk).update(**running)


def test_a_query_with_a_lost_worker_fails_and_the_next_one_is_answered(
    job: Job, snapshot: Checkpoint, now: datetime, reader: Any
) -> None:
    reader("print('{\"keyed\": []}')")
    lost = store_query(job, snapshot, LIST, "olga", now)
    gone = {"state": StateReadState.RUNNING, "claimed_until": now - timedelta(seconds=1), "started_at": now}
    StateRead.objects.filter(pk=lost.pk).update(**gone)
    waits = store_query(job, snapshot, StateQuery(StateReadKind.READ), "olga", now)
    assert run_next_read(now) == done(WorkReason.STATE_READ(snapshot=waits.label_value, job=job.name))
    lost.refresh_from_db()
    waits.refresh_from_db()
    assert (lost.state, lost.problem_value) == ("failed", StateReadReason.WORKER_GONE())
    assert lost.problem == "The worker that read the state stopped. Try again."
    assert (waits.state, waits.answer) == ("done", {"keyed": []})


def test_typed_text_is_never_an_option_of_the_command(job: Job, snapshot: Checkpoint, now: datetime) -> None:
    question = StateQuery(
        StateReadKind.READ, query="--json", operator=0, view="-x", key_field="--where", key_text="1=1", contains="-h"
    )
    result = arguments(store_query(job, snapshot, question, "olga", now))
    assert result[:3] == ["state", "read", "--json"]
    assert result[3:-2] == [
        "--query=--json", "--operator=0", "--view=-x", "--key=--where=1=1", "--contains=-h", "--limit=100"
    ]  # fmt: skip
    assert result[-2:] == ["--", snapshot.external_path]


@pytest.mark.parametrize("kind", list(StateReadKind))
def test_the_command_accepts_every_kind_of_query_and_names_missing_arguments(
    job: Job, snapshot: Checkpoint, now: datetime, kind: StateReadKind
) -> None:
    """The real command looks for the snapshot before it starts Spark."""
    question = StateQuery(
        kind, query="q", operator=0, view="total", key_field="a", key_text="-1", contains="--", partition=0
    )
    read = store_query(job, snapshot, question, "olga", now, other=snapshot if kind is StateReadKind.DIFF else None)
    run_next_read(now)
    read.refresh_from_db()
    assert read.problem_value.code == StateReadReason.NOT_READ
    assert read.problem_value.args["problem"].startswith("/data/checkpoints/chk-5: ")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"import sys; print({json.dumps(NO_VIEW.as_json())!r}); sys.exit('WARN a')", NO_VIEW),
        ("import sys; sys.exit('WARN a\\nKilled')", StateReadReason.PROCESS_ENDED(code=1, detail="Killed")),
        ("import sys; sys.exit(3)", StateReadReason.WITHOUT_REASON()),
        ("print('{')", StateReadReason.UNREADABLE()),
        ("print('x' * 5_000_000)", StateReadReason.TOO_LARGE(size=5_000_001, most=answering.MOST_BYTES)),
    ],
)
def test_an_error_is_stored_for_the_person_who_queried(
    job: Job, snapshot: Checkpoint, now: datetime, reader: Any, script: str, expected: Reason
) -> None:
    reader(script)
    read = store_query(job, snapshot, LIST, "olga", now)
    run_next_read(now)
    read.refresh_from_db()
    assert read.state == StateReadState.FAILED
    assert read.problem_value == expected


def test_a_reader_that_hangs_is_ended_with_all_that_it_started(
    job: Job, snapshot: Checkpoint, now: datetime, reader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    popen = subprocess.Popen

    def begun(*args: Any, **options: Any) -> Any:
        process = popen(*args, **options)
        eventually("the reader has started its child", lambda: child.exists() and child.read_text())
        return process

    monkeypatch.setattr(subprocess, "Popen", begun)  # the limit begins when it returns
    monkeypatch.setattr(answering, "LIMIT", timedelta(seconds=1))
    reader(
        "import subprocess, sys, pathlib\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(p.pid))\n"
        "p.wait()\n"
    )
    read = store_query(job, snapshot, LIST, "olga", now)
    run_next_read(now)
    read.refresh_from_db()
    assert read.problem_value == StateReadReason.TOO_SLOW(limit_s=1)
    assert read.problem.startswith("Reading took longer than 1 s and was stopped.")
    eventually("its child ended", lambda: not _lives(int(child.read_text())))


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
