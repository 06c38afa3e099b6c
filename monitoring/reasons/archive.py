"""Reasons why the history's archive, or a file of it, cannot be read or written."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode


class ArchiveReason(ReasonCode):
    FILE = "archive.file", _("{path}: {problem}")
    MISSING = "archive.missing", _("it is missing")
    STORAGE_SILENT = "archive.storage-silent", _("the archive's storage did not answer within {limit_s:g} s")
    NO_PARQUET = "archive.no-parquet", _("it is not a complete Parquet file")
    OTHER_SIZE = (
        "archive.other-size",
        ngettext("it has {size:,} byte, not {expected:,}", "it has {size:,} bytes, not {expected:,}", "size"),
    )
    OTHER_ROWS = (
        "archive.other-rows",
        ngettext("it has {rows:,} row, not {expected:,}", "it has {rows:,} rows, not {expected:,}", "rows"),
    )
    OTHER_CONTENT = "archive.other-content", _("its content differs from what was written")

    UNUSABLE = "archive.unusable", _("The archive cannot be written or read: {problem}")
    PROCESS_ENDED = (
        "archive.process-ended",
        _("The process that archives the history failed with exit code {code}: {detail}"),
    )
    PROCESS_ENDED_SILENTLY = (
        "archive.process-ended-silently",
        _("The process that archives the history failed with exit code {code} and without an error message."),
    )
    PROCESS_HUNG = (
        "archive.process-hung",
        _("The process that archives the history did not end within {limit_s:g} s and was killed."),
    )
