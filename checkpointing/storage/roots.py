"""Where savepoints may lie: a path that somebody sent is confined to the configured directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkpointing.storage.errors import OutsideSavepointRoots, StorageError
from checkpointing.storage.locations import canonical, is_local


class SavepointRoots:
    """`roots` are locations (absolute paths, `file:` or remote addresses); with none configured all is refused.

    Only `confine` looks at the file system, and blocks as long as that does.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(canonical(root) for root in roots)

    @property
    def roots(self) -> tuple[str, ...]:
        return self._roots

    def confine(self, path: str) -> str:
        """`path` in its canonical spelling, a local one without symbolic links; OutsideSavepointRoots elsewhere.

        Links on a remote server cannot be seen: who may write there may lead out of a root. The root that `path` names
        is resolved first, so that another root that hangs does not hold it up.
        """
        resolved, named = _resolved(path), self.root_of(path)
        for root in sorted(self._roots, key=lambda root: root != named):
            if _is_within(resolved, _resolved(root)):
                return resolved
        raise OutsideSavepointRoots(path, self.roots)

    def root_of(self, path: str) -> str | None:
        """The root that `path` names, whatever symbolic links lead to; None when it names none. Looks at nothing."""
        try:
            location = canonical(path)
        except StorageError:
            return None
        return next((root for root in self._roots if _is_within(location, root)), None)


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _resolved(location: str) -> str:
    location = canonical(location)
    if not is_local(location):
        return location
    try:
        return str(Path(location).resolve())
    except RuntimeError as error:
        raise StorageError(f"{location}: its symbolic links go in circles") from error
