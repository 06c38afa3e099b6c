"""Damage in a dead attempt's files is detected before the next attempt continues from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointing.checkpoint_location.local_recovery import LiveQuery, LocalState, LocalStateUnusable, write_record
from checkpointing.checkpoint_location.started_batches import StartedBatches, last_started_batch
from checkpointing.spark.timelines import begin_timeline
from tests.checkpointing.spark.recordings import unpacked


def shortened(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(max(0, path.stat().st_size - 3))


def overwritten(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(bytes(byte ^ 0xFF for byte in content))


def emptied(path: Path) -> None:
    path.unlink()
    path.touch()


def removed(path: Path) -> None:
    path.unlink()


DAMAGED = {
    "the last commit": "commits/4",
    "the last offsets": "offsets/4",
    "the offsets in flight": "offsets/5",
    "the query's id": "metadata",
    "a changelog": "state/0/0/*.changelog",
    "a snapshot": "state/0/0/*.zip",
    "an SST file": "state/0/0/SSTs/*.sst",
    "the operator's metadata": "state/0/_metadata/metadata",
}


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of an attempt with five batches of a count, and a sixth in progress."""
    recorded = unpacked("count in rocksdb format 2", tmp_path_factory.mktemp("recorded"))
    work = tmp_path_factory.mktemp("left") / "work"
    location = shutil.copytree(recorded.location, work / "queries" / "0-words")
    begin_timeline(location, "timeline", None)
    write_record(work, [LiveQuery("words", "queries/0-words", partitions={"0": 2})])
    for name in ("{}", ".{}.crc"):
        shutil.copyfile(location / "offsets" / name.format(4), location / "offsets" / name.format(5))
    return work


def needed(work: Path) -> list[str]:
    target = work / "tried"
    try:
        LocalState.read(work).build("words", target)
        return [str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()]
    except LocalStateUnusable:
        return []
    finally:
        shutil.rmtree(target, ignore_errors=True)


@pytest.mark.parametrize("harm", [shortened, overwritten, emptied, removed], ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("what", DAMAGED)
def test_damage_is_noticed(left_behind: Path, tmp_path: Path, what: str, harm: Callable[[Path], None]) -> None:
    work = tmp_path / "work"
    shutil.copytree(left_behind, work)
    location = work / "queries" / "0-words"
    LocalState.read(work).check()
    used = set(needed(work))
    victims = [path for path in location.glob(DAMAGED[what]) if str(path.relative_to(location)) in used]
    victim = max(victims, key=lambda path: path.name)
    harm(victim)
    if (what, harm) == ("a snapshot", removed):
        assert str(victim.relative_to(location)) not in needed(work), "the changelogs lead there without it"
        return
    with pytest.raises(LocalStateUnusable):
        LocalState.read(work).check()


def test_a_missing_partition_is_detected(left_behind: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(left_behind, work)
    shutil.rmtree(work / "queries" / "0-words" / "state" / "0" / "1")
    with pytest.raises(LocalStateUnusable, match="state/0/1 is missing"):
        LocalState.read(work).check()


def test_missing_newer_commits_are_detected_by_the_state(left_behind: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(left_behind, work)
    for log, numbers in (("commits", (3, 4)), ("offsets", (3, 4, 5))):
        for number in numbers:
            for name in (f"{number}", f".{number}.crc"):
                (work / "queries" / "0-words" / log / name).unlink()
    with pytest.raises(LocalStateUnusable, match="newer than the newest offsets, 2"):
        LocalState.read(work).check()


def test_an_attempt_without_its_record_is_not_continued(tmp_path: Path) -> None:
    with pytest.raises(LocalStateUnusable, match="ended before it started its queries"):
        LocalState.read(tmp_path)
    (tmp_path / "queries.json").write_text(json.dumps({"boot_id": 3}))
    with pytest.raises(LocalStateUnusable, match=r"queries\.json cannot be read"):
        LocalState.read(tmp_path)


def test_started_batch_is_recorded_per_query(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metadata").write_text(json.dumps({"id": f"id-{name}"}))

    class Frame:
        def __getattr__(self, name: str) -> Any:
            return self

        def getLocalProperty(self, name: str) -> str:
            assert name == "sql.streaming.queryId"
            return "id-b"

    StartedBatches([tmp_path / "a", tmp_path / "b", tmp_path / "not yet"]).note(Frame(), 4)
    assert (last_started_batch(tmp_path / "a"), last_started_batch(tmp_path / "b")) == (-1, 4)
