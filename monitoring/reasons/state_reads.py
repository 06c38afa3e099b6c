"""Labels of the snapshots whose state is read, and reasons why one cannot be read."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import ReasonCode


class StateReadReason(ReasonCode):
    CHECKPOINT = "state-reads.checkpoint", _("checkpoint {number} of run {run}")
    SAVEPOINT = "state-reads.savepoint", _("savepoint {number} of run {run}")

    SNAPSHOT_OF_ANOTHER_JOB = "state-reads.snapshot-of-another-job", _("Snapshot {number} is not one of this job.")
    TOO_MANY = "state-reads.too-many", _("{count} questions wait already. Ask again when some are answered.")
    WORKER_GONE = "state-reads.worker-gone", _("The worker that read it is gone. Ask again.")
    TOO_SLOW = "state-reads.too-slow", _("It took longer than {limit_s:.0f} s and was given up. Ask for less of it.")
    TOO_LARGE = (
        "state-reads.too-large",
        _("The answer has {size:,} bytes, {most:,} at most are shown. Ask for fewer rows."),
    )
    UNREADABLE = "state-reads.unreadable", _("The answer cannot be read: it is no JSON.")
    WITHOUT_REASON = "state-reads.without-reason", _("The reader ended without a word.")
