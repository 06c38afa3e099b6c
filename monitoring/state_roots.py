"""The storage that a worker may read itself: the places that WAYMARK_STATE_ROOTS names."""

from __future__ import annotations

from django.conf import settings

from checkpointing.storage import StorageError, canonical


def names_a_root(path: str) -> bool:
    """Return whether `path` is written as a place below WAYMARK_STATE_ROOTS. Reads no storage."""
    return any(is_below(path, root) for root in settings.STATE_ROOTS)


def is_below(path: str, root: str) -> bool:
    """Return whether `path` is `root` or a place below it, as both are written."""
    try:
        return f"{canonical(path)}/".startswith(f"{canonical(root).rstrip('/')}/")
    except StorageError:
        return False
