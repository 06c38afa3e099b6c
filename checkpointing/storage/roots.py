"""Where savepoints may lie: a path that somebody sent is confined to the configured directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkpointing.storage.errors import OutsideSavepointRoots, StorageError
from checkpointing.storage.layout import local_path


class SavepointRoots:
    """`roots` are absolute paths or `file:` URIs; with none configured every path is refused."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(Path(local_path(root)).resolve() for root in roots)

    @property
    def roots(self) -> tuple[str, ...]:
        return tuple(str(root) for root in self._roots)

    def confine(self, path: str) -> str:
        """`path` as an absolute local path without symbolic links; OutsideSavepointRoots when it leads elsewhere."""
        try:
            resolved = Path(local_path(path)).resolve()
        except RuntimeError as error:
            raise StorageError(f"{path}: its symbolic links go in circles") from error
        if not any(resolved.is_relative_to(root) for root in self._roots):
            raise OutsideSavepointRoots(path, self.roots)
        return str(resolved)
