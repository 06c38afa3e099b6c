"""Only intact SST files are linked into a restored state, because Spark would read a damaged file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import CheckpointKind, StateFile, SubtaskMetrics, Vertex, VertexKind
from checkpointing.spark.restore import Snapshot, SnapshotDamaged, restore_query

COUNT = Vertex("2" * 32, "count", VertexKind.STATEFUL, 1, "words")
CONTENT = b"sorted keys and values" * 100
SST = "state/0/0/SSTs/000012-0a1b2c.sst"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return an SST file in the pool of shared files."""
    path = tmp_path / "checkpoints" / "shared" / "000012"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return path


def restore(stored: Path, location: Path) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    file = StateFile(SST, f"shared/{stored.name}", len(CONTENT), digest, shared=True)
    subtask = SubtaskState(0, SubtaskMetrics(), (file,), acknowledged_ms=5)
    checkpoint = CompletedCheckpoint(
        job_id="1" * 32,
        job_name="words",
        entry_class="w:main",
        checkpoint_id=7,
        properties=CheckpointProperties(
            CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION, forced=False
        ),
        trigger_timestamp=1,
        completion_timestamp=9,
        operators=(OperatorState(COUNT.id, COUNT.name, COUNT.kind, COUNT.query, 1, (subtask,)),),
        batches={"words": 41},
        location=str(stored.parents[1] / "chk-7"),
        shared_location=str(stored.parent),
    )
    assert restore_query(Snapshot(checkpoint), "words", [COUNT], location) == 41


def test_a_complete_file_is_linked(stored: Path, tmp_path: Path) -> None:
    restore(stored, tmp_path / "live")
    assert (tmp_path / "live" / SST).samefile(stored)


@pytest.mark.parametrize("size", [0, 1, len(CONTENT) - 1, len(CONTENT) + 1])
def test_file_of_another_size_is_refused_and_not_linked(stored: Path, tmp_path: Path, size: int) -> None:
    stored.write_bytes((CONTENT + b"x")[:size])
    with pytest.raises(SnapshotDamaged, match=f"it has {size} bytes instead of {len(CONTENT)}"):
        restore(stored, tmp_path / "live")
    assert not (tmp_path / "live" / SST).exists()


def test_file_on_another_file_system_is_copied_and_checked(
    stored: Path, other_file_system: Path, tmp_path: Path
) -> None:
    restore(stored, other_file_system / "live")
    copy = other_file_system / "live" / SST
    assert (copy.read_bytes(), copy.stat().st_nlink) == (CONTENT, 1)
    stored.write_bytes(b"X" + CONTENT[1:])
    with pytest.raises(SnapshotDamaged):
        restore(stored, other_file_system / "again")
