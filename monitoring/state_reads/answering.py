"""Answer one query at a time, each in a separate process with a time limit.

The process may start a JVM; if the JVM hangs or runs out of memory, the worker is not affected.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import IntegrityError, transaction

from monitoring import clock
from monitoring.models import StateRead, StateReadKind, StateReadState
from monitoring.reasons.columns import columns, stored
from monitoring.reasons.reason import Reason, from_text
from monitoring.reasons.report import CycleReport
from monitoring.reasons.state_reads import StateReadReason
from monitoring.reasons.work import WorkReason

LIMIT = timedelta(minutes=3)
_LEASE = LIMIT + timedelta(seconds=30)
MOST_BYTES = 4_000_000  # largest size of an answer
_PROBLEM_LIMIT = 20_000  # bytes of a failed command's output that are read, from the end


def run_next_read(now: datetime) -> CycleReport | None:
    """Answer the query that has waited longest. Do nothing while another query is in progress."""
    _fail_orphaned(now)
    read = _claim(now)
    if read is None:
        return None
    answer, problem = _answer_to(read, LIMIT)
    state = StateReadState.FAILED if problem else StateReadState.DONE
    mine = StateRead.objects.filter(pk=read.pk, state=StateReadState.RUNNING, started_at=now)
    mine.update(
        state=state, answer=answer, **columns("problem", problem or ""), ended_at=clock.now(), claimed_until=None
    )
    of = {"snapshot": stored(read, "label"), "job": read.job.name}
    return CycleReport((WorkReason.STATE_NOT_READ(**of, problem=problem) if problem else WorkReason.STATE_READ(**of),))


def _fail_orphaned(now: datetime) -> None:
    lost = StateRead.objects.filter(state=StateReadState.RUNNING, claimed_until__lt=now)
    problem = columns("problem", StateReadReason.WORKER_GONE())
    lost.update(state=StateReadState.FAILED, **problem, ended_at=now, claimed_until=None)


def _claim(now: datetime) -> StateRead | None:
    """Claim the next query. The database's constraint allows only one running query, so a second worker gets None."""
    if StateRead.objects.filter(state=StateReadState.RUNNING).exists():
        return None
    waiting = StateRead.objects.filter(state=StateReadState.WAITING).order_by("asked_at", "id").select_related("job")
    read = waiting.first()
    if read is None:
        return None
    mine = StateRead.objects.filter(pk=read.pk, state=StateReadState.WAITING)
    try:
        with transaction.atomic():
            taken = mine.update(state=StateReadState.RUNNING, started_at=now, claimed_until=now + _LEASE)
    except IntegrityError:
        return None
    return read if taken else None


def arguments(read: StateRead) -> list[str]:
    """Return the arguments for `manage.py`. Texts from people are always after `--option=` within an argument."""
    found = ["state", str(read.kind), "--json"]
    if read.kind != StateReadKind.LIST:
        found += _reference(read)
    match StateReadKind(read.kind):
        case StateReadKind.READ:
            found += [f"--key={read.key_field}={read.key_text}"] if read.key_field else []
            found += [f"--contains={read.contains}"] if read.contains else []
            found += [f"--partition={read.partition}"] if read.partition is not None else []
            found.append(f"--limit={read.most}")
        case StateReadKind.SIZES:
            found.append("--rows")
        case StateReadKind.DIFF:
            found.append(f"--sample={read.most}")
        case StateReadKind.LIST:
            pass
    return [*found, "--", read.location, *([read.other_location] if read.kind == StateReadKind.DIFF else [])]


def _reference(read: StateRead) -> Iterator[str]:
    if read.query:
        yield f"--query={read.query}"
    if read.operator is not None:
        yield f"--operator={read.operator}"
    if read.view:
        yield f"--view={read.view}"


def _answer_to(read: StateRead, limit: timedelta) -> tuple[Any, Reason | None]:
    """Run the process, and return the answer, or None and the problem."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        command = [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), *arguments(read)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True)
        try:
            code = process.wait(limit.total_seconds())
        except subprocess.TimeoutExpired:
            return None, StateReadReason.TOO_SLOW(limit_s=limit)
        finally:
            _end(process)
        if code != 0:
            return None, _problem(code, out, errors)
        return _parsed(out)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and the JVM that it may have started: both are in the same process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _parsed(out: IO[bytes]) -> tuple[Any, Reason | None]:
    size = out.seek(0, os.SEEK_END)
    if size > MOST_BYTES:
        return None, StateReadReason.TOO_LARGE(size=size, most=MOST_BYTES)
    out.seek(0)
    try:
        return json.loads(out.read()), None
    except ValueError:
        return None, StateReadReason.UNREADABLE()


def _problem(code: int, out: IO[bytes], errors: IO[bytes]) -> Reason:
    """Return the reason that the command wrote. If it wrote none, quote the last line of its error output."""
    reason = from_text(_end_of(out))
    if reason is not None:
        return reason
    detail = _end_of(errors).strip().rpartition("\n")[2].strip()
    return StateReadReason.PROCESS_ENDED(code=code, detail=detail) if detail else StateReadReason.WITHOUT_REASON()


def _end_of(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _PROBLEM_LIMIT))
    return file.read().decode(errors="replace")
