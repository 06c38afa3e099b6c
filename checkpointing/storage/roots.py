"""Where savepoints may lie: a path that somebody sent is confined to the configured directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkpointing.storage.errors import OutsideSavepointRoots, StorageError
from checkpointing.storage.locations import canonical, is_local


class SavepointRoots:
    """`roots` are locations (absolute paths, `file:` or remote addresses); with none configured all is refused."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(_resolved(root) for root in roots)

    @property
    def roots(self) -> tuple[str, ...]:
        return self._roots

    def confine(self, path: str) -> str:
        """`path` in its canonical spelling, a local one without symbolic links; OutsideSavepointRoots elsewhere.

        Links on a remote server cannot be seen: who may write there may lead out of a root.
        """
        resolved = _resolved(path)
        if not any(resolved == root or resolved.startswith(f"{root.rstrip('/')}/") for root in self._roots):
            raise OutsideSavepointRoots(path, self.roots)
        return resolved


def _resolved(location: str) -> str:
    location = canonical(location)
    if not is_local(location):
        return location
    try:
        return str(Path(location).resolve())
    except RuntimeError as error:
        raise StorageError(f"{location}: its symbolic links go in circles") from error
