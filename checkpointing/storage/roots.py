"""The allowed directories of savepoints: a path in a request must be below one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkpointing.storage.errors import OutsideSavepointRoots, StorageError
from checkpointing.storage.locations import canonical, is_local


class SavepointRoots:
    """The allowed directories. `roots` are locations (absolute paths, `file:` or remote addresses).

    Without any root, every path is refused. Only `resolve` accesses the file system, and blocks as long as that does.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(canonical(root) for root in roots)

    @property
    def roots(self) -> tuple[str, ...]:
        return self._roots

    def resolve(self, path: str) -> str:
        """Return the canonical form of `path`, for a local one without symbolic links.

        Raise OutsideSavepointRoots if it is outside of all roots. Links on a remote server are not visible: a user with
        write access there may lead out of a root. The root in `path` is resolved first, so that another root that hangs
        does not delay it.
        """
        resolved, named = _resolved(path), self.root_of(path)
        for root in sorted(self._roots, key=lambda root: root != named):
            if _is_within(resolved, _resolved(root)):
                return resolved
        raise OutsideSavepointRoots(path, self.roots)

    def root_of(self, path: str) -> str | None:
        """Return the root in `path` by name, without following links, or None. Does not access files."""
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
        raise StorageError(f"{location}: its symbolic links form a loop") from error
