"""Where the archive lies: WAYMARK_ARCHIVE, any place that checkpoints can lie in. Its directories are

    checkpoints/day=2026-08-01/cluster=3/0000-1f2e….parquet     operators/…     samples/…

with a manifest beside the files of each: what is there, for whoever reads it without Waymark's database.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from django.conf import settings

from checkpointing.storage.checksums import sha256_of
from checkpointing.storage.files import Files
from checkpointing.storage.locations import is_local
from checkpointing.storage.opening import files_for

MANIFEST = "manifest.json"
# Files from afar are brought here as a whole, to be read in part, page after page; the oldest go.
CACHE_BYTES = 2_000_000_000
_WRITING = ".writing"


def files() -> Files:
    return files_for(settings.ARCHIVE)


def place(path: str) -> str:
    return f"{settings.ARCHIVE}/{path}"


def directory_of(kind: str, day: date, cluster_id: int) -> str:
    return f"{kind}/day={day.isoformat()}/cluster={cluster_id}"


@contextmanager
def workshop() -> Iterator[Path]:
    """A directory to write in: where the archive lies when that is this machine, so that what was written and verified
    only gets its name. What a killed process left in one is removed by the next."""
    if is_local(settings.ARCHIVE):
        files().make_directory(settings.ARCHIVE)
        parent = Path(settings.ARCHIVE) / _WRITING
        shutil.rmtree(parent, ignore_errors=True)
        parent.mkdir()
        try:
            yield parent
        finally:
            shutil.rmtree(parent, ignore_errors=True)
    else:
        with tempfile.TemporaryDirectory(prefix="waymark-archive-") as made:
            yield Path(made)


def put(source: Path, path: str) -> None:
    """The file is there as a whole, durably, and has the bytes of `source`; else OSError."""
    target, storage = place(path), files()
    directory = target.rpartition("/")[0]
    storage.make_directory(directory)
    storage.put(source, target)
    storage.make_durable([target, directory])
    sha256 = sha256_of(source)
    if storage.checksum(target, sha256) != sha256:
        raise OSError(f"{target} was written, and reads otherwise")


def here(path: str, sha256: str) -> Path:
    """A file of the archive on this machine: itself, or a copy that was checked when it came. OSError."""
    if is_local(settings.ARCHIVE):
        return Path(place(path))
    copy = Path(settings.VAR_DIR) / "archive-cache" / sha256
    if not copy.exists():
        _bring(path, sha256, copy)
    return copy


def _bring(path: str, sha256: str, copy: Path) -> None:
    _make_room(copy.parent)
    arriving = copy.with_name(f".{uuid.uuid4().hex}")
    try:
        if files().get(place(path), arriving, sha256) != sha256:
            raise OSError(f"{place(path)} has another content than was written")
        arriving.replace(copy)
    finally:
        arriving.unlink(missing_ok=True)


def _make_room(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    known = sorted((each for each in cache.iterdir() if each.is_file()), key=lambda each: each.stat().st_mtime)
    size = sum(each.stat().st_size for each in known)
    while known and size > CACHE_BYTES:
        size -= known[0].stat().st_size
        known.pop(0).unlink(missing_ok=True)
