"""Snapshots of real Flink as directories. Their `_metadata` is recorded; the other files have only their sizes."""

from __future__ import annotations

import json
from pathlib import Path

RECORDED = Path(__file__).parents[2] / "flink_samples" / "snapshots"


def names() -> list[str]:
    return sorted(path.stem for path in RECORDED.glob("*.json"))


def sizes(name: str) -> dict[str, int]:
    """Return the sizes of the snapshot's other files, including files that it shares with other snapshots, by name."""
    recorded: dict[str, int] = json.loads((RECORDED / f"{name}.json").read_text())
    return recorded


def metadata(name: str) -> bytes:
    return (RECORDED / f"{name}.metadata").read_bytes()


def lay_down(name: str, directory: Path) -> Path:
    """Write the snapshot with all its files to `directory`, and return the directory."""
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(metadata(name))
    for file, size in sizes(name).items():
        with (directory / file).open("wb") as opened:
            opened.truncate(size)
    return directory
