"""Labels of the snapshots whose state is read, and reasons why one cannot be read."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import ReasonCode


class StateReadReason(ReasonCode):
    CHECKPOINT = "state-reads.checkpoint", _("checkpoint {number} of run {run}")
    SAVEPOINT = "state-reads.savepoint", _("savepoint {number} of run {run}")

    SNAPSHOT_OF_ANOTHER_JOB = "state-reads.snapshot-of-another-job", _("Snapshot {number} does not belong to this job.")
    TOO_MANY = "state-reads.too-many", _("{count} requests are already queued. Try again when some of them are done.")
    NOT_READ = "state-reads.not-read", _("The state cannot be read: {problem}")
    WORKER_GONE = "state-reads.worker-gone", _("The worker that read the state stopped. Try again.")
    TOO_SLOW = (
        "state-reads.too-slow",
        _("Reading took longer than {limit_s:.0f} s and was stopped. Request less of the state."),
    )
    TOO_LARGE = (
        "state-reads.too-large",
        _("The result has {size:,} bytes, but at most {most:,} can be shown. Request fewer rows."),
    )
    UNREADABLE = "state-reads.unreadable", _("The result cannot be read: it is not JSON.")
    PROCESS_ENDED = "state-reads.process-ended", _("The reader failed with exit code {code}: {detail}")
    WITHOUT_REASON = "state-reads.without-reason", _("The reader ended without an error message.")
