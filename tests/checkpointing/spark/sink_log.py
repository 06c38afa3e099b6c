"""The log of Spark's file sink, read as Spark reads it."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path


def logged(output: Path) -> set[Path]:
    """Return the data files that the log in `output` names, from its newest `.compact` file on.

    Older files of the log stay after a restore. They may name files of a batch that was abandoned.
    """
    log = {int(file.stem): file for file in (output / "_spark_metadata").glob("[0-9]*")}
    newest_compaction = max((number for number, file in log.items() if file.suffix == ".compact"), default=0)
    counted = [file for number, file in log.items() if number >= newest_compaction]
    entries = [json.loads(line) for file in counted for line in file.read_text().splitlines()[1:]]
    return {Path(urllib.parse.unquote(urllib.parse.urlsplit(entry["path"]).path)) for entry in entries}
