"""A recorder of a cluster's checkpoints that runs in parallel to the poller and shares no code with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.monitoring.flink.cluster import FlinkCluster

EVERY_S = 2.0
Json = dict[str, Any]


@dataclass
class Recorded:
    """The newest answers about one checkpoint: its entry in the history, its details, its subtasks by operator."""

    listed: Json
    details: Json | None = None
    subtasks: dict[str, Json] = field(default_factory=dict)


@dataclass
class Recording:
    """By job ID, the newest answer with the list of checkpoints, and all checkpoints that were ever listed."""

    flink: FlinkCluster
    answers: dict[str, Json] = field(default_factory=dict)
    checkpoints: dict[str, dict[int, Recorded]] = field(default_factory=dict)

    def look(self) -> None:
        for job in self.flink.get("/jobs/overview")["jobs"]:
            self._look_at(job["jid"])

    def _look_at(self, job_id: str) -> None:
        answer = self.flink.found(f"/jobs/{job_id}/checkpoints")
        if answer is None:
            return
        self.answers[job_id] = answer
        seen = self.checkpoints.setdefault(job_id, {})
        newest = [answer["latest"][kind] for kind in ("completed", "savepoint", "failed")]
        for listed in [*answer["history"], *filter(None, newest)]:
            record = seen.setdefault(listed["id"], Recorded(listed))
            # An ended checkpoint is read once, because Flink lists only ten: slower reading would miss some.
            if record.details is not None and record.listed == listed and listed["status"] != "IN_PROGRESS":
                continue
            record.listed = listed
            self._look_into(f"/jobs/{job_id}/checkpoints/details/{listed['id']}", record)

    def _look_into(self, path: str, record: Recorded) -> None:
        details = self.flink.found(path)
        if details is None:
            return
        record.details = details
        for vertex in details["tasks"]:
            answer = self.flink.found(f"{path}/subtasks/{vertex}")
            if answer is not None:
                record.subtasks[vertex] = answer


@contextmanager
def recording(flink: FlinkCluster) -> Iterator[Recording]:
    record = Recording(flink)
    over = threading.Event()
    failed: list[BaseException] = []

    def look_on() -> None:
        try:
            while not over.wait(EVERY_S):
                record.look()
        except BaseException as error:  # noqa: BLE001 (raised again in the test's thread)
            failed.append(error)

    thread = threading.Thread(target=look_on)
    thread.start()
    try:
        yield record
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]


def moment(value: int) -> datetime | None:
    """Convert epoch milliseconds to a time, and -1 to None."""
    if value < 0:
        return None
    return datetime.fromtimestamp(value // 1000, UTC).replace(microsecond=value % 1000 * 1000)


def amount(value: int) -> int | None:
    return None if value < 0 else value


def expected_checkpoint(record: Recorded) -> Json:
    """Return the expected columns of the checkpoint's row."""
    stats = record.details
    assert stats is not None
    done = [one for answer in record.subtasks.values() for one in answer["subtasks"] if one["status"] == "completed"]
    return {
        "status": stats["status"],
        "is_savepoint": stats["is_savepoint"],
        "checkpoint_type": stats["checkpoint_type"],
        "savepoint_format": stats["savepointFormat"] or "",
        "triggered_at": moment(stats["trigger_timestamp"]),
        "failed_at": moment(stats.get("failure_timestamp", -1)),
        "failure_message": stats.get("failure_message") or "",
        "external_path": stats.get("external_path") or "",
        **_totals(stats),
        "alignment_max": max((one["alignment"]["duration"] for one in done), default=None),
        "start_delay_max": max((one["start_delay"] for one in done), default=None),
        "sync_max": max((one["checkpoint"]["sync"] for one in done), default=None),
        "async_max": max((one["checkpoint"]["async"] for one in done), default=None),
    }


def expected_operators(record: Recorded, vertices: list[Json]) -> dict[str, Json]:
    """Return the expected columns of the operators' rows, by vertex."""
    order = [vertex["id"] for vertex in vertices]
    names = {vertex["id"]: vertex["name"] for vertex in vertices}
    return {
        vertex: {
            "name": names[vertex],
            "position": order.index(vertex),
            **_totals(answer),
            **_arrays(sorted(answer["subtasks"], key=lambda one: int(one["index"]))),
        }
        for vertex, answer in record.subtasks.items()
    }


def _totals(stats: Json) -> Json:
    return {
        "num_subtasks": stats["num_subtasks"],
        "num_acknowledged_subtasks": stats["num_acknowledged_subtasks"],
        "latest_ack_at": moment(stats["latest_ack_timestamp"]),
        **{
            name: amount(stats[name])
            for name in (
                *("end_to_end_duration", "checkpointed_size", "state_size", "processed_data", "persisted_data"),
            )
        },
    }


def _arrays(subtasks: list[Json]) -> Json:
    """Return a list of values for each metric, with None for subtasks that have not acknowledged."""

    def column(*path: str) -> list[Any]:
        values = []
        for subtask in subtasks:
            value: Any = subtask if subtask["status"] == "completed" else None
            for name in path:
                value = None if value is None else value[name]
            values.append(value)
        return values

    return {
        "subtask_ack_at": [None if value is None else moment(value) for value in column("ack_timestamp")],
        "subtask_end_to_end": column("end_to_end_duration"),
        "subtask_checkpointed_size": column("checkpointed_size"),
        "subtask_state_size": column("state_size"),
        "subtask_sync": column("checkpoint", "sync"),
        "subtask_async": column("checkpoint", "async"),
        "subtask_alignment": column("alignment", "duration"),
        "subtask_start_delay": column("start_delay"),
        "subtask_processed": column("alignment", "processed"),
        "subtask_persisted": column("alignment", "persisted"),
        "subtask_unaligned": column("unaligned_checkpoint"),
        "subtask_aborted": column("aborted"),
    }
