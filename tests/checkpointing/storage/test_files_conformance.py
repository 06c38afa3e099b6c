"""The conformance tests of `Files`: local files, the job manager's memory, and fsspec with real servers."""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from checkpointing.storage.checksums import of_sums, sums_of
from checkpointing.storage.opening import PROCESS_MEMORY
from tests.checkpointing.storage.conftest import Place

# One checksum of each kind.
SHA256, CRC32 = "e3" * 32, of_sums(b"")


def local(tmp_path: Path, content: bytes, name: str = "source") -> Path:
    (tmp_path / "here").mkdir(exist_ok=True)
    path = tmp_path / "here" / name
    path.unlink(missing_ok=True)  # as Spark does: a write in place would change the linked file in the storage
    path.write_bytes(content)
    return path


def put(place: Place, source: Path, path: str) -> None:
    place.files.make_directory(path.rpartition("/")[0])
    place.files.put(source, path)


def test_written_file_replaces_any_content(place: Place) -> None:
    path = f"{place.root}/a/b/_metadata"
    place.files.make_directory(f"{place.root}/a/b")
    for content in (b"first", b"second, longer", b""):
        place.files.write_durably(path, content)
        assert place.files.read(path) == content
        assert place.files.checksum(path, SHA256) == hashlib.sha256(content).hexdigest()
        assert place.files.checksum(path, CRC32) == of_sums(sums_of(content))
        assert place.files.sizes(f"{place.root}/a/b") == {"_metadata": len(content)}, "nothing temporary stays"


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_a_file_is_stored_and_read_unchanged(place: Place, tmp_path: Path, size: int) -> None:
    content = (hashlib.sha256(b"x").digest() * (size // 32 + 1))[:size]
    path = f"{place.root}/chk-1/words/state/0/1.zip"
    place.files.make_directory(f"{place.root}/chk-1")
    place.files.put(local(tmp_path, content), path)
    place.files.make_durable([path.rpartition("/")[0]])
    expected = {SHA256: hashlib.sha256(content).hexdigest(), CRC32: of_sums(sums_of(content))}
    for like, checksum in expected.items():
        assert place.files.get(path, tmp_path / like / "1.zip", like) == checksum
        assert (tmp_path / like / "1.zip").read_bytes() == content


def test_putting_replaces_an_existing_file(place: Place, tmp_path: Path) -> None:
    path = f"{place.root}/shared/x"
    place.files.make_directory(place.root)
    place.files.put(local(tmp_path, b"old"), path)
    newer = local(tmp_path, b"newer", "other")
    place.files.put(newer, path)
    assert place.files.read(path) == b"newer"
    place.files.put(newer, path)
    assert place.files.sizes(f"{place.root}/shared") == {"x": 5}


def test_missing_file_raises_file_not_found(place: Place, tmp_path: Path) -> None:
    missing = f"{place.root}/no/such/file"
    for ask in (
        lambda: place.files.read(missing),
        lambda: place.files.checksum(missing, SHA256),
        lambda: place.files.get(missing, tmp_path / "x", SHA256),
    ):
        with pytest.raises(FileNotFoundError):
            ask()
    assert list(place.files.names(missing)) == []
    assert place.files.sizes(missing) == {}
    place.files.remove_file(missing)
    place.files.remove_tree(missing)
    place.files.remove_empty_directory(missing)


def test_a_new_directory_must_be_new(place: Place) -> None:
    directory = f"{place.root}/job/chk-1"
    place.files.make_directory(directory, new=True)
    place.files.make_directory(directory)
    place.files.write_durably(f"{directory}/_metadata", b"x")
    with pytest.raises(FileExistsError):
        place.files.make_directory(directory, new=True)
    assert place.files.read(f"{directory}/_metadata") == b"x"


def test_a_directory_lists_only_its_direct_files_and_directories(place: Place, tmp_path: Path) -> None:
    for name in ("job/a", "job/chk-1/b", "job/chk-1/deep/c", "job2/d"):
        put(place, local(tmp_path, name.encode()), f"{place.root}/{name}")
    assert sorted(place.files.names(f"{place.root}/job")) == ["a", "chk-1"]
    assert place.files.sizes(f"{place.root}/job") == {"a": 5}
    assert place.files.sizes(f"{place.root}/job/chk-1") == {"b": 11}


def test_a_part_of_a_file_is_read_and_the_end_is_not_an_error(place: Place, tmp_path: Path) -> None:
    path = f"{place.root}/job/log"
    put(place, local(tmp_path, b"0123456789"), path)
    parts = [place.files.read_part(path, start, size) for start, size in ((0, 4), (4, 4), (8, 4), (9, 1_000_000))]
    assert parts == [b"0123", b"4567", b"89", b"9"]
    with pytest.raises(FileNotFoundError):
        place.files.read_part(f"{place.root}/no/such/file", 0, 4)


def test_one_listing_has_sizes_and_times(place: Place, tmp_path: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    for name in ("job/a", "job/chk-1/b"):
        put(place, local(tmp_path, name.encode()), f"{place.root}/{name}")
    entries = place.files.entries(f"{place.root}/job")
    assert {name: entry.is_directory for name, entry in entries.items()} == {"a": False, "chk-1": True}
    assert entries["a"].size == 5
    at_ms = entries["a"].modified_ms
    if place.files is PROCESS_MEMORY:
        assert at_ms is None
    else:
        assert at_ms is not None
        assert -2_000 < at_ms - before_ms < 120_000  # some servers report seconds
    with pytest.raises(FileNotFoundError):
        place.files.entries(f"{place.root}/missing")


def test_removing_deletes_only_the_named_path(place: Place, tmp_path: Path) -> None:
    for name in ("job/chk-1/_metadata", "job/chk-1/deep/c", "job/chk-10/d", "job/shared/e"):
        put(place, local(tmp_path, b"x"), f"{place.root}/{name}")
    place.files.remove_file(f"{place.root}/job/chk-1/_metadata")
    assert place.files.sizes(f"{place.root}/job/chk-1") == {}
    place.files.remove_empty_directory(f"{place.root}/job/shared")
    assert place.files.sizes(f"{place.root}/job/shared") == {"e": 1}, "not empty"
    place.files.remove_tree(f"{place.root}/job/chk-1")
    assert sorted(place.files.names(f"{place.root}/job")) == ["chk-10", "shared"]
    place.files.remove_file(f"{place.root}/job/shared/e")
    place.files.remove_empty_directory(f"{place.root}/job/shared")
    assert list(place.files.names(f"{place.root}/job")) == ["chk-10"]


def test_many_threads_at_a_time_in_one_directory(place: Place, tmp_path: Path) -> None:
    sources = [local(tmp_path, f"content {number}".encode(), str(number)) for number in range(24)]
    together = threading.Barrier(8)

    def put_together(source: Path) -> None:
        if int(source.name) < 8:
            together.wait(30)
        put(place, source, f"{place.root}/chk-1/state/{int(source.name) % 3}/{source.name}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put_together, sources))
        back = list(
            pool.map(
                lambda source: place.files.read(f"{place.root}/chk-1/state/{int(source.name) % 3}/{source.name}"),
                sources,
            )
        )
    assert back == [source.read_bytes() for source in sources]
