"""Reasons why a file of the history's archive cannot be read."""

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
