"""What real Flink took, as directories: the `_metadata` was recorded, of the other files only their sizes."""

from __future__ import annotations

import json
from pathlib import Path

RECORDED = Path(__file__).parents[2] / "flink_samples" / "snapshots"


def names() -> list[str]:
    return sorted(path.stem for path in RECORDED.glob("*.json"))


def sizes(name: str) -> dict[str, int]:
    """What lay beside the `_metadata` and in the directories that it shares with others: bytes by file name."""
    recorded: dict[str, int] = json.loads((RECORDED / f"{name}.json").read_text())
    return recorded


def metadata(name: str) -> bytes:
    return (RECORDED / f"{name}.metadata").read_bytes()


def lay_down(name: str, directory: Path) -> Path:
    """A savepoint, all of whose files lie in `directory`."""
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(metadata(name))
    for file, size in sizes(name).items():
        with (directory / file).open("wb") as opened:
            opened.truncate(size)
    return directory
