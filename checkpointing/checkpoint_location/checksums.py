"""Checks whether a file of a checkpointLocation is what Spark wrote, with the checksums that Spark and Hadoop left.

    .<name>.crc      Hadoop's, next to each file that it wrote: a CRC-32 for every 512 bytes
    <name>.crc       Spark's (state format 2): the size, and a CRC-32C that Spark itself checks when it reads the file
    <version>.zip    a CRC-32 for each member, and the sizes of the SST files it refers to
    logs             JSON

A restore writes Hadoop's checksums next to its files, so that Spark notices damage, too, when it reads them.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import struct
import zipfile
import zlib
from pathlib import Path

from checkpointing.storage.checksums import STEP, of_sums, sha256_of, sums_of

_MAGIC = b"crc\x00"
_LARGEST_CHECKED_WHOLE = 2 << 20
# Reading a smaller file takes no longer than reading its stored checksum.
_LEAST_TOLD_BY_SUMS = 1 << 20
_LOG = re.compile(r"metadata|offsets/\d+|commits/\d+")


def check_file(location: Path, path: str) -> None:
    """Check one file. The ValueError or OSError names a damaged file."""
    target = location / path
    size = target.stat().st_size
    _check_against_hadoop(target, size)
    _check_against_spark(target, size)
    if path.endswith(".zip"):
        _check_zip(target, target.read_bytes())
    elif _LOG.fullmatch(path):
        _check_log(path, target.read_bytes())


def is_rewritten(path: str) -> bool:
    """Return whether Waymark writes a placed file again (schema_paths.py, timelines.py).

    Old checksums of such a file are wrong. `path` is relative to the checkpointLocation.
    """
    return "/_metadata/v2/" in path or path == "timelines"


def sums_path(path: Path) -> Path:
    """Return the path of Hadoop's checksums of `path`."""
    return path.with_name(f".{path.name}.crc")


def write_sums(path: Path) -> None:
    """Write checksums for `path` as Hadoop would. Skip a large file, of which Spark itself keeps a checksum."""
    if path.stat().st_size <= _LARGEST_CHECKED_WHOLE:
        content = path.read_bytes()
        sums_path(path).write_bytes(_MAGIC + struct.pack(">i", STEP) + sums_of(content))


def is_identified_by_sums(path: str, size: int) -> bool:
    """Return whether a snapshot may identify this file by Hadoop's checksums.

    This holds for large SST files of RocksDB. Their names are unique and never written again, so that file and
    checksums always match.
    """
    return path.endswith(".sst") and size >= _LEAST_TOLD_BY_SUMS


def checksum_of(path: Path) -> str:
    """Return the checksum that identifies the content (storage/checksums.py), if possible without reading it."""
    size = path.stat().st_size
    if is_identified_by_sums(path.name, size):
        with contextlib.suppress(ValueError):
            written = _written_sums(path, size)
            if written is not None and written[0] == STEP:
                return of_sums(written[1])
    return sha256_of(path)


def _written_sums(path: Path, size: int) -> tuple[int, bytes] | None:
    """Return the number of bytes for each checksum and the checksums, big-endian, or None if there are none.

    Raise ValueError if they are damaged.
    """
    try:
        sums = sums_path(path).read_bytes()
    except FileNotFoundError:
        return None
    if not sums.startswith(_MAGIC) or len(sums) < 8:
        raise ValueError(f"the checksums of {path.name} are damaged")
    (step,) = struct.unpack(">i", sums[4:8])
    known = sums[8:]
    if step < 1 or len(known) != 4 * -(-size // step):
        raise ValueError(f"{path.name} is damaged: it has {size} bytes, which do not match the number of its checksums")
    return step, known


def _check_against_hadoop(path: Path, size: int) -> None:
    written = _written_sums(path, size)
    if written is None:
        return
    step, known = written
    with path.open("rb") as file:
        for begin, end in _checked_parts(size, step):
            file.seek(begin)
            if sums_of(file.read(end - begin), step) != known[begin // step * 4 : -(-end // step) * 4]:
                raise ValueError(f"{path.name} is damaged: its content does not match its checksum")


def _checked_parts(size: int, step: int) -> list[tuple[int, int]]:
    """Return the parts to check: both ends of a large file, else all. RocksDB checks each block that it reads."""
    if size <= _LARGEST_CHECKED_WHOLE:
        return [(0, size)]
    part = _LARGEST_CHECKED_WHOLE // 2 // step * step
    return [(0, part), ((size - part) // step * step, size)]


def _check_against_spark(path: Path, size: int) -> None:
    try:
        promised = json.loads(path.with_name(f"{path.name}.crc").read_text())["mainFileSize"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"the checksum of {path.name} is damaged") from error
    if size != promised:
        raise ValueError(f"{path.name} is damaged: it has {size} bytes instead of {promised}")


def _check_zip(path: Path, content: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if (member := archive.testzip()) is not None:
                raise ValueError(f"{path.name} is damaged: its member {member} does not match its checksum")
            metadata = json.loads(archive.read("metadata").decode().partition("\n")[2])
    except (zipfile.BadZipFile, KeyError, zlib.error) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error
    for file in metadata.get("sstFiles") or ():
        sst = path.parent / "SSTs" / file["dfsSstFileName"]
        if sst.stat().st_size != file["sizeBytes"]:
            raise ValueError(f"{sst.name} is damaged: it has {sst.stat().st_size} bytes, not {file['sizeBytes']}")


def _check_log(path: str, content: bytes) -> None:
    lines = content.decode().splitlines()
    if path != "metadata" and not (lines and re.fullmatch(r"v\d+", lines.pop(0))):
        raise ValueError(f"{path} is damaged: it does not begin with a version such as v1")
    if not lines or not all(_is_whole(line) for line in lines):
        raise ValueError(f"{path} is damaged: it is truncated or not JSON")


def _is_whole(line: str) -> bool:
    """Return whether a log line is complete. A line that does not look like JSON has a source's own format."""
    try:
        if line.startswith(("{", "[")):
            json.loads(line)
    except ValueError:
        return False
    return bool(line)
