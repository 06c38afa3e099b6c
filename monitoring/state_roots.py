"""Check paths against WAYMARK_STATE_ROOTS, the storage that a worker may read itself."""

from __future__ import annotations

from django.conf import settings

from checkpointing.storage import StorageError, canonical


def names_a_root(path: str) -> bool:
    """Return whether `path` is by its name below one of WAYMARK_STATE_ROOTS. Storage is not accessed."""
    return any(is_below(path, root) for root in settings.STATE_ROOTS)


def is_below(path: str, root: str) -> bool:
    """Return whether `path` is by its name `root` or below it."""
    try:
        return f"{canonical(path)}/".startswith(f"{canonical(root).rstrip('/')}/")
    except StorageError:
        return False
