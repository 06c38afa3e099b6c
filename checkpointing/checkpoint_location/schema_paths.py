"""The absolute paths that Spark keeps inside a checkpointLocation, put right after its files have moved.

transformWithState's operator metadata (`state/<operator>/_metadata/v2/<batch>`) names its schema files by the path of
the directory that it was written in. Elsewhere a query, and who reads its state, looks there: it fails when the old
directory is gone, and reads another attempt's files when it is not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_METADATA = "state/*/_metadata/v2/*"


def relocate_schemas(location: Path) -> None:
    """Make the metadata in `location` name the schema files in `location`. OSError, ValueError when it is damaged."""
    for path in location.glob(_METADATA):
        if path.name.isdigit():
            _relocate(path, location)


def _relocate(path: Path, location: Path) -> None:
    version, _, body = path.read_text().partition("\n")
    metadata: dict[str, Any] = json.loads(body)
    for store in metadata.get("stateStoreInfo", ()):
        store["stateSchemaFilePaths"] = [_moved(each, location) for each in store.get("stateSchemaFilePaths", ())]
    path.unlink()  # it may be a link to the snapshot's own
    path.write_text(f"{version}\n{json.dumps(metadata, separators=(',', ':'))}")


def _moved(path: str, location: Path) -> str:
    """A schema file lies at `state/<operator>/_stateSchema/<store>/<name>`."""
    inside = path.split("/")[-5:]
    if inside[0] != "state" or inside[2] != "_stateSchema":
        raise ValueError(f"{path!r} is no path of a state schema")
    return f"{hadoop_path(location)}/{'/'.join(inside)}"


def hadoop_path(path: Path) -> str:
    """As Hadoop writes a local path: as it is, where a URI would quote it."""
    return f"file:{path.absolute()}"
