"""Files that were replaced, or are older than WAYMARK_ARCHIVE_KEPT, go: first the file, then what is known of it.

Of what was too old is remembered that it was there: the roll-ups of its day stay as they are.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db.models import QuerySet

from monitoring.history.archive import location
from monitoring.models import ArchivedFile, ArchivedState
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason

_AT_ONCE = 500


def anything_to_forget(now: datetime) -> bool:
    return _on_their_way().exists() or _old(now).exists()


def forget(now: datetime) -> Reason | None:
    """Remove them. Returns what went, None when there was nothing that anybody would miss."""
    old = _old(now).update(state=ArchivedState.EXPIRED)
    for row in _on_their_way()[:_AT_ONCE]:
        _remove(row.path)
        if row.state == ArchivedState.GOING:
            row.delete()
        else:
            ArchivedFile.objects.filter(pk=row.pk).update(state=ArchivedState.REMOVED)
    return WorkReason.FILES_REMOVED(count=old, days=settings.ARCHIVE_KEPT.days) if old else None


def _remove(path: str) -> None:
    """With its directory, when nothing is left in it but the manifest, if that."""
    files, place = location.files(), location.place(path)
    files.remove_file(place)
    directory = place.rpartition("/")[0]
    if set(files.names(directory)) <= {location.MANIFEST}:
        files.remove_tree(directory)


def _on_their_way() -> QuerySet[ArchivedFile]:
    return ArchivedFile.objects.filter(state__in=(ArchivedState.GOING, ArchivedState.EXPIRED))


def _old(now: datetime) -> QuerySet[ArchivedFile]:
    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE)
    return live.filter(until__lt=now - settings.ARCHIVE_KEPT) if settings.ARCHIVE_KEPT else live.none()
