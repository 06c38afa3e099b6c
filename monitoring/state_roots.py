"""Check paths against WAYMARK_STATE_ROOTS, the storage that a worker may read itself."""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings

from checkpointing.model.refusals import Refusal, Refused
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


def check_target(target: str, watched: Iterable[str]) -> None:
    """Check a directory for savepoints of watched queries, by its name. Storage is not accessed.

    `watched` are the directories in which Waymark must never write. Raise Refused.
    """
    if not names_a_root(target):
        raise Refused(Refusal.TARGET_NOT_ALLOWED, target=target)
    for root in watched:
        if root and is_below(target, root):
            raise Refused(Refusal.TARGET_INSIDE, target=target, root=root)
