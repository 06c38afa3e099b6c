"""The format version in whole RocksDB states, so that one version of Spark reads what another one wrote.

A whole state `V.zip` or `V_<id>.zip` has an entry `metadata` that begins with a line `v1` or `v2`. Spark 4.0 writes the
number of the state store's checkpoint format there, and later versions write `v1` in every format. Each refuses the
line of the other, although the rest of the entry is the same.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from checkpointing.checkpoint_location.checksums import sums_path, write_sums

_WHOLE_STATE = re.compile(r"\d+(?P<id>_[0-9a-f-]{36})?\.zip")  # with an id: checkpoint format 2
_METADATA = "metadata"
_KNOWN = (b"v1", b"v2")


def fit_metadata(location: Path, spark_version: str) -> None:
    """Make every whole RocksDB state of a restored checkpointLocation readable by this version of Spark.

    Raises:
        OSError, ValueError: a state cannot be read or written.
    """
    for path in (location / "state").rglob("*.zip"):
        match = _WHOLE_STATE.fullmatch(path.name)
        if match is not None:
            in_format_of_4_0 = spark_version.startswith("4.0.") and match["id"] is not None
            try:
                _set_version(path, b"v2" if in_format_of_4_0 else b"v1")
            except (zipfile.BadZipFile, KeyError) as error:
                raise ValueError(f"{path} is not a whole RocksDB state: {error}") from error


def _set_version(path: Path, wanted: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        version, line_end, content = archive.read(_METADATA).partition(b"\n")
        if version == wanted or version not in _KNOWN:
            return
        fresh = path.with_name(f".{path.name}.tmp")
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as target:
            for entry in archive.infolist():
                changed = entry.filename == _METADATA
                target.writestr(entry.filename, wanted + line_end + content if changed else archive.read(entry))
    spark_sums = path.with_name(f"{path.name}.crc")
    for stale in (sums_path(path), spark_sums, sums_path(spark_sums)):
        stale.unlink(missing_ok=True)
    fresh.rename(path)  # not written in place: `path` may be a link to the snapshot's file
    write_sums(path)
