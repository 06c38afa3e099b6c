"""Reasons why savepoints are not taken, failed, are damaged, are kept or are deleted."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode


class SavepointReason(ReasonCode):
    NOT_NOW = "savepoints.not-now", _("No savepoint now: {reason}.")
    NEVER_RAN = "savepoints.never-ran", _("the job has never run")
    NOT_RUNNING = "savepoints.not-running", _("the job is {state}, not RUNNING")
    CLUSTER_SILENT = "savepoints.cluster-silent", _("the cluster does not answer")
    UNSEEN = "savepoints.unseen", _("the job has not been seen since {since:second}")
    OPERATOR_STOPS = (
        "savepoints.operator-stops",
        _("the Flink operator runs the job, so stop it there: set spec.job.state of {resource} to suspended"),
    )
    UNDER_WAY = "savepoints.under-way", _("a savepoint is already under way")
    WAITS = (
        "savepoints.waits",
        ngettext(
            "it is queued: {cluster} takes at most {count} savepoint at once",
            "it is queued: {cluster} takes at most {count} savepoints at once",
            "count",
        ),
        "savepoints.waits-for-one",
    )

    TOO_LATE = "savepoints.too-late", _("Not completed in time: {why:clause}.")
    STILL_UNDER_WAY = "savepoints.still-under-way", _("it is still under way")
    NEVER_ARRIVED = "savepoints.never-arrived", _("the engine never received the request")
    FORGOTTEN = "savepoints.forgotten", _("the engine no longer knows the request")
    LOST = (
        "savepoints.lost",
        _("The engine no longer knows the request, and the job's history has no savepoint from it."),
    )
    PATH_OF_ANOTHER = (
        "savepoints.path-of-another",
        _("The engine returned {path}, which belongs to another savepoint."),
    )
    ENDED_UNFOUND = (
        "savepoints.ended-unfound",
        _(
            "The cluster has been silent since {since:hh:mm:ss}, before it reported the savepoint. Waymark found no "
            "savepoint of the stop in {places}."
        ),
    )
    ENDED_UNSEARCHED = (
        "savepoints.ended-unsearched",
        _(
            "The cluster has been silent since {since:hh:mm:ss}, before it reported the savepoint. Waymark cannot look "
            "for it, because WAYMARK_STATE_ROOTS contains none of {places}."
        ),
    )
    NO_DIRECTORY_KNOWN = "savepoints.no-directory-known", _("its directories, of which none is known")
    STOPPED = "savepoints.stopped", _("Waymark ordered the stop, whose savepoint is complete.")
    STOPPED_UNSAVED = (
        "savepoints.stopped-unsaved",
        _("Waymark ordered the stop, and the cluster has ended. No savepoint of the stop was found."),
    )
    WITHOUT_REASON = "savepoints.without-reason", _("The engine gave no reason.")

    STORAGE_SILENT = (
        "savepoints.storage-silent",
        _("{place} could not be checked within {limit_s:g} s: its storage does not respond"),
    )
    SENTENCE = "savepoints.sentence", _("{clause}.")
    METADATA_UNREADABLE = "savepoints.metadata-unreadable", _("its {file} cannot be read: {error}")
    FILE_MISSING = "savepoints.file-missing", _("{file} is missing")
    FILE_OF_ANOTHER_SIZE = (
        "savepoints.file-of-another-size",
        ngettext(
            "{file} has {size} byte instead of {expected}", "{file} has {size} bytes instead of {expected}", "size"
        ),
    )
    INVALID = "savepoints.invalid", _("the engine reports it as invalid and gives no reason")

    NOT_REMOVED_NOW = "savepoints.not-removed-now", _("It is not deleted now: {why}.")
    NOT_REMOVED_FROM_STORAGE = (
        "savepoints.not-removed-from-storage",
        _("Its files were not deleted. The storage reports: {error}"),
    )
    REMOVAL_FORGOTTEN = (
        "savepoints.removal-forgotten",
        _("The engine no longer knows the request. Waymark sends it again."),
    )
    NOTHING_TO_REMOVE = "savepoints.nothing-to-remove", _("There was nothing to delete: {why}")

    NO_SCHEDULE = "savepoints.no-schedule", _("no schedule")
    EVERY = "savepoints.every", _("every {length:length}")
    CRON = "savepoints.cron", _("{expression:cron} ({zone})")
    QUIETED = "savepoints.quieted", _("{schedule}, not between {start} and {end} ({zone})")
    HOURS_NEEDED = "savepoints.hours-needed", _("hours such as 22:00-06:00 are needed, or nothing for all hours")
    SECONDS_NEEDED = (
        "savepoints.seconds-needed",
        _("a whole number of seconds from {least} to {most} is needed, or nothing for no schedule"),
    )
    ZONE_NEEDED = (
        "savepoints.zone-needed",
        _("the name of a time zone is needed, such as Europe/Berlin or UTC"),
    )
    FIELDS_NEEDED = "savepoints.fields-needed", _("five fields are needed: {fields}")
    BAD_CRON = "savepoints.bad-cron", _("the cron expression is not valid: {error}")
    NO_SUCH_DAY = "savepoints.no-such-day", _("no day within the next 50 years matches")

    NOTE_TOO_LONG = "savepoints.note-too-long", _("The note has {count} characters; at most {most} are allowed.")
    NOT_PINNED = (
        "savepoints.not-pinned",
        _("The savepoint cannot be pinned: its files are deleted or are being deleted."),
    )
    NOT_COMPLETED = "savepoints.not-completed", _("This is not a completed savepoint, or no longer one.")
    RESTART_UNDER_WAY = (
        "savepoints.restart-under-way",
        _("Restart {epoch} of the job is under way. Nothing is deleted until it ends."),
    )
    STAYS = "savepoints.stays", _("The savepoint is kept: {reason}.")
    BY_HAND = "savepoints.by-hand", _("manually")

    NEEDED_BY_RUN = "savepoints.needed-by-run", _("run {number} was started from it")
    NEEDED_BY_RESTART = "savepoints.needed-by-restart", _("restart {epoch} starts from it")
    NEEDED_BY_OTHER_RUN = "savepoints.needed-by-other-run", _("a run of another job was started from it")
    NEEDED_BY_OTHER_START = "savepoints.needed-by-other-start", _("another job is being started from it")
    PINNED = "savepoints.pinned", _("pinned")
    NEWEST_GOOD = "savepoints.newest-good", _("the newest usable one")
    OF_OPERATOR = "savepoints.of-operator", _("taken by the Flink operator, which deletes it with its resource")
    NOT_OURS = "savepoints.not-ours", _("taken manually or by another tool, so retention does not delete it")
    JOB_KEEPS_ALL = "savepoints.job-keeps-all", _("the job keeps all")
    AMONG_NEWEST = "savepoints.among-newest", _("among the newest {count}")
    YOUNGER = "savepoints.younger", _("younger than {age:length}")
    OUTLASTED = "savepoints.outlasted", _("number {place} from the newest, {age:length} old; the job {policy}")
    KEEPS_ALL = "savepoints.keeps-all", _("keeps all")
    KEEPS_NEWEST = "savepoints.keeps-newest", _("keeps the newest {count}")
    KEEPS_YOUNG = "savepoints.keeps-young", _("keeps those of the last {age:length}")
    KEEPS_NEWEST_AND_YOUNG = (
        "savepoints.keeps-newest-and-young",
        _("keeps the newest {count} and those of the last {age:length}"),
    )
