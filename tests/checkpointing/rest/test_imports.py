"""`POST /savepoints/import/validate`: checks a checkpoint location before it is copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.spark.recordings import unpacked

PATH = "/savepoints/import/validate"


async def test_validation_describes_the_location_and_copies_nothing(manager: RunningJobManager, tmp_path: Path) -> None:
    location = unpacked("count in rocksdb format 2", tmp_path / "count").location
    answer = await manager.post(PATH, {"checkpoints": {"words": str(location), "late": str(tmp_path / "none")}})
    [words, late] = answer["checkpoints"]
    assert words.pop("queryId")
    assert words.pop("batchTimestamp") > 0
    assert words.pop("size") > words["files"] > 0
    assert words == {
        "query": "words",
        "location": f"file:{location}",
        "valid": True,
        "reason": "",
        "batch": 4,
        "begunBatch": None,
        "sources": 1,
        "operators": [{"name": "stateStoreSave", "partitions": 2}],
        "stateStore": "RocksDB",
        "formats": {"offsets": "v1", "commits": "v2"},
        "files": words["files"],
    }
    assert (late["valid"], late["reason"]) == (False, f"{tmp_path}/none does not exist, or is empty.")
    assert late["refusal"] == {"code": "imports.empty", "args": {"location": f"{tmp_path}/none"}}
    assert not list((manager.settings.state_directory / "savepoints").glob("*"))


@pytest.mark.parametrize(
    ("checkpoints", "message"),
    [
        ({}, "checkpoints: an object is expected"),
        (["/a"], "checkpoints: an object is expected"),
        ({"": "/a", "b": "/b"}, "checkpoints: one of several locations has no query"),
        ({"a": "/x", "b": "/x/"}, "checkpoints: two queries have the same location"),
        ({"a": "relative"}, "checkpoints: 'relative' is neither an absolute path nor an address"),
    ],
)
async def test_request_without_locations_is_refused(
    manager: RunningJobManager, checkpoints: object, message: str
) -> None:
    with pytest.raises(RequestRefused, match=message):
        await manager.post(PATH, {"checkpoints": checkpoints})
