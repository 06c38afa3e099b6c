"""Every answer has all fields of a real Flink's answer, with the same types. Waymark's fields are additional."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkpointing.jobs.fake_driver import COUNT
from tests.checkpointing.jobs.running_job_manager import RunningJobManager

SAMPLES = Path(__file__).resolve().parents[2] / "flink_samples"

# Flink 2.3 groups jobs in applications. Waymark has none.
_NOT_OURS = ("application-id", "applicationId")
# Flink has null here, too, for failures that do not belong to a task.
_NULLABLE = ("taskName", "endpoint", "taskManagerId")
_ID = re.compile(r"[0-9a-f]{32}")
RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


def sample(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.json").read_text())


def lacking(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Yield fields of `theirs` that `ours` lacks or has with another type. Null in `theirs` allows any type."""
    if theirs is None:
        return
    if _kind(ours) != _kind(theirs):
        yield f"{where}: {_kind(ours)} instead of {_kind(theirs)}"
    elif isinstance(theirs, dict) and theirs and all(_ID.fullmatch(key) for key in theirs):
        yield from lacking(next(iter(ours.values())), next(iter(theirs.values())), f"{where}.<id>")
    elif isinstance(theirs, dict):
        for key, value in theirs.items():
            if key in _NULLABLE and key in ours and ours[key] is None:
                continue
            if key in ours:
                yield from lacking(ours[key], value, f"{where}.{key}")
            elif key not in _NOT_OURS:
                yield f"{where}.{key} is missing"
    elif isinstance(theirs, list) and ours and theirs:
        yield from lacking(ours[0], theirs[0], f"{where}[0]")


def _kind(value: Any) -> str:
    """Return the type of a value. The text NaN counts as a number, because Flink sends it for some numbers."""
    if isinstance(value, bool):
        return "flag"
    return "number" if isinstance(value, int | float) or value == "NaN" else type(value).__name__


def test_comparison_finds_missing_and_mistyped_fields() -> None:
    theirs = {"id": 1, "nested": [{"path": "x", "size": "NaN"}], "other": None, "flag": True}

    assert list(lacking({"id": "1", "nested": [{"size": 2.5}], "other": 5, "flag": 1}, theirs)) == [
        ".id: str instead of number",
        ".nested[0].path is missing",
        ".flag: number instead of flag",
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/overview", "overview"),
        ("/config", "config"),
        ("/jobs", "jobs"),
        ("/jobs/overview", "jobs_overview"),
        ("/jobs/{job}", "job"),
        ("/jobs/{job}/status", "job_status"),
        ("/jobs/{job}/config", "job_config"),
        ("/jobs/{job}/exceptions", "exceptions_after_decline"),
        ("/jobs/{job}/checkpoints", "checkpoints"),
        ("/jobs/{job}/checkpoints/config", "checkpoints_config"),
        ("/jobs/{job}/checkpoints/details/{checkpoint}", "checkpoint_details"),
        (f"/jobs/{{job}}/checkpoints/details/{{checkpoint}}/subtasks/{COUNT.id}", "checkpoint_subtasks"),
        ("/jars", "jars"),
    ],
)
async def test_an_answer_lacks_nothing_that_flinks_has(manager: RunningJobManager, path: str, name: str) -> None:
    job_id = await manager.submit_running(RESTARTS)
    if name.startswith("exceptions"):
        await (await manager.driver(1)).report_failure("a bad row")
        await manager.driver(2)
        await manager.until(job_id, "RUNNING")
    checkpoint = await manager.checkpoint(job_id)

    ours = await manager.get(path.format(job=job_id, checkpoint=checkpoint))

    assert list(lacking(ours, sample(name), path)) == []


async def test_operations_answer_as_flinks_do(manager: RunningJobManager) -> None:
    jar_id = await manager.upload()
    run = await manager.post(f"/jars/{jar_id}/run", {"entryClass": "wordcount.py:wordcount"})
    job = f"/jobs/{run['jobid']}"
    await manager.until(run["jobid"], "RUNNING")
    triggered = await manager.post(f"{job}/savepoints")
    savepoint = await manager.operation(f"{job}/savepoints/{triggered['request-id']}")
    checkpoint = (await manager.post(f"{job}/checkpoints"))["request-id"]
    await manager.operation(f"{job}/checkpoints/{checkpoint}")
    disposal = (await manager.post("/savepoint-disposal", {"savepoint-path": savepoint["location"]}))["request-id"]
    await manager.operation(f"/savepoint-disposal/{disposal}")

    answers = {
        "jar_run": run,
        "sp_trigger": triggered,
        "stop_status": await manager.get(f"{job}/savepoints/{triggered['request-id']}"),
        "cp_status": await manager.get(f"{job}/checkpoints/{checkpoint}"),
        "dispose_status": await manager.get(f"/savepoint-disposal/{disposal}"),
    }
    assert [line for name, answer in answers.items() for line in lacking(answer, sample(name), name)] == []


async def test_a_failed_operation_answers_as_flinks_does(manager: RunningJobManager) -> None:
    job = f"/jobs/{'0' * 32}"
    trigger = (await manager.post(f"{job}/savepoints"))["request-id"]
    await manager.operation(f"{job}/savepoints/{trigger}")

    ours = await manager.get(f"{job}/savepoints/{trigger}")

    assert list(lacking(ours, sample("sp_status_nojob"))) == []
