"""Flink's gauges of a job's checkpoints, by their names: −1, "n/a" for the path, before there is anything to say."""

from __future__ import annotations

from checkpointing.coordinator.stats_json import external_path
from checkpointing.coordinator.stats_model import NOT_YET, CheckpointStatistics, CheckpointStatsSnapshot

NO_PATH = "n/a"


def checkpoint_gauges(snapshot: CheckpointStatsSnapshot) -> dict[str, int | str]:
    """The `lastCheckpoint…` are of the newest completed one, be it a checkpoint or a savepoint."""
    counts, restored = snapshot.counts, snapshot.latest_restored
    return {
        "totalNumberOfCheckpoints": counts.total,
        "numberOfInProgressCheckpoints": counts.in_progress,
        "numberOfCompletedCheckpoints": counts.completed,
        "numberOfFailedCheckpoints": counts.failed,
        "lastCheckpointRestoreTimestamp": NOT_YET if restored is None else restored.restore_timestamp,
        **_last_completed(_newest(snapshot)),
    }


def _last_completed(last: CheckpointStatistics | None) -> dict[str, int | str]:
    path = None if last is None else last.external_path
    return {
        "lastCompletedCheckpointId": NOT_YET if last is None else last.checkpoint_id,
        "lastCheckpointCompletedTimestamp": NOT_YET if last is None else last.totals.latest_ack_timestamp,
        "lastCheckpointDuration": NOT_YET if last is None else last.end_to_end_duration,
        "lastCheckpointSize": NOT_YET if last is None else last.totals.checkpointed_size,
        "lastCheckpointFullSize": NOT_YET if last is None else last.totals.state_size,
        "lastCheckpointMetadataSize": NOT_YET if last is None else last.metadata_size,
        "lastCheckpointProcessedData": NOT_YET if last is None else last.totals.processed_data,
        "lastCheckpointPersistedData": NOT_YET if last is None else last.totals.persisted_data,
        "lastCheckpointExternalPath": NO_PATH if path is None else external_path(path),
    }


def _newest(snapshot: CheckpointStatsSnapshot) -> CheckpointStatistics | None:
    completed = (snapshot.latest_completed, snapshot.latest_savepoint)
    return max((c for c in completed if c is not None), key=lambda c: c.checkpoint_id, default=None)
