"""Corrects the absolute paths inside a checkpointLocation after its files have moved.

transformWithState's operator metadata (`state/<operator>/_metadata/v2/<batch>`) names its schema files by the path of
the original directory. A query, and readers of its state, use these paths. If the old directory is gone, they fail;
otherwise they read another attempt's files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_METADATA = "state/*/_metadata/v2/*"


def relocate_schemas(location: Path) -> None:
    """Make the metadata in `location` name the schema files in `location`. Raise OSError, or ValueError for damage."""
    for path in location.glob(_METADATA):
        if path.name.isdigit():
            _relocate(path, location)


def _relocate(path: Path, location: Path) -> None:
    version, _, body = path.read_text().partition("\n")
    metadata: dict[str, Any] = json.loads(body)
    for store in metadata.get("stateStoreInfo", ()):
        store["stateSchemaFilePaths"] = [_moved(each, location) for each in store.get("stateSchemaFilePaths", ())]
    path.unlink()  # the file may be a link to the snapshot's own
    path.write_text(f"{version}\n{json.dumps(metadata, separators=(',', ':'))}")


def _moved(path: str, location: Path) -> str:
    """Return the new path of a schema file, `state/<operator>/_stateSchema/<store>/<name>`."""
    inside = path.split("/")[-5:]
    if inside[0] != "state" or inside[2] != "_stateSchema":
        raise ValueError(f"{path!r} is not the path of a state schema")
    return f"{hadoop_path(location)}/{'/'.join(inside)}"


def hadoop_path(path: Path) -> str:
    """Return a local path in Hadoop's notation: unlike a URI, it quotes no characters."""
    return f"file:{path.absolute()}"
