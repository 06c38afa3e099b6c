"""Reasons in the reports of the periodic tasks and of the poller."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode


class WorkReason(ReasonCode):
    REPORT = "work.report", "{parts:sentences}"

    INCIDENTS_CHANGED = "work.incidents-changed", _("{looked}; incidents: {changes}.")
    INCIDENTS_CLOSED = "work.incidents-closed", _("Incidents: {changes}; no rule was due.")
    NO_INCIDENT_CHANGED = "work.no-incident-changed", _("No incident changed; {looked}.")
    RULES_EVALUATED = "work.rules-evaluated", ngettext("{count} rule evaluated", "{count} rules evaluated", "count")
    RULES_FROZEN = (
        "work.rules-frozen",
        ngettext(
            "{looked}; {count} frozen because its cluster does not answer",
            "{looked}; {count} frozen because their cluster does not answer",
            "count",
        ),
    )
    INCIDENTS_OPENED = "work.incidents-opened", _("{count} opened")
    INCIDENTS_UPDATED = "work.incidents-updated", _("{count} changed")
    INCIDENTS_RESOLVED = "work.incidents-resolved", _("{count} resolved")
    SNOOZES_OVER = "work.snoozes-over", ngettext("{count} snooze is over.", "{count} snoozes are over.", "count")

    NOTIFICATIONS = "work.notifications", _("Notifications: {done}.")
    NOTIFICATIONS_SENT = "work.notifications-sent", _("{count} sent")
    NOTIFICATIONS_RETRIED = "work.notifications-retried", _("{count} will be retried")
    NOTIFICATIONS_GIVEN_UP = "work.notifications-given-up", _("{count} given up")
    OVERTAKEN = "work.overtaken", _("{count} already handled by another worker")

    SAVEPOINTS = "work.savepoints", _("Savepoints: {done}.")
    SAVEPOINTS_REQUESTED = "work.savepoints-requested", _("{count} requested")
    SAVEPOINTS_DEFERRED = "work.savepoints-deferred", _("{count} deferred")
    SAVEPOINTS_SENT = "work.savepoints-sent", _("{count} sent")
    SAVEPOINTS_TO_BE_SENT_AGAIN = "work.savepoints-to-be-sent-again", _("{count} to be sent again")
    SAVEPOINTS_COMPLETED = "work.savepoints-completed", _("{count} completed")
    SAVEPOINTS_FAILED = "work.savepoints-failed", _("{count} failed")
    SAVEPOINTS_LINKED = "work.savepoints-linked", _("{count} found in the history")
    SAVEPOINTS_GONE = "work.savepoints-gone", _("{count} found missing")
    SAVEPOINTS_DAMAGED = "work.savepoints-damaged", _("{count} found damaged")
    SAVEPOINTS_DISPOSED = "work.savepoints-disposed", _("{count} deleted")
    SAVEPOINTS_NOT_DISPOSED = "work.savepoints-not-disposed", _("{count} could not be deleted yet")

    RETENTION = "work.retention", _("Retention: {gone} no longer kept.")
    SAVEPOINTS_COUNTED = "work.savepoints-counted", ngettext("{count} savepoint", "{count} savepoints", "count")
    MESSAGES = "work.messages", ngettext("{count} message", "{count} messages", "count")
    PROGRAMS = "work.programs", ngettext("{count} program", "{count} programs", "count")
    PROGRAMS_COPIED = "work.programs-copied", ngettext("{count} program copied.", "{count} programs copied.", "count")

    DEFAULTS_APPLIED = (
        "work.defaults-applied",
        ngettext("{count} job got its default settings.", "{count} jobs got their default settings.", "count"),
    )
    INVENTORY_APPLIED = (
        "work.inventory-applied",
        ngettext(
            "{count} change of the inventory file applied.", "{count} changes of the inventory file applied.", "count"
        ),
    )
    INVENTORY_NOT_APPLIED = "work.inventory-not-applied", _("The inventory file {file} is not applied. {problem}")

    PARTITIONS_MADE = "work.partitions-made", _("Partitions created in advance: {names}.")
    MINUTES_FORGOTTEN = "work.minutes-forgotten", _("Minute roll-ups deleted: {count:,}.")
    HOURS_FORGOTTEN = "work.hours-forgotten", _("Hour roll-ups before {before:day} deleted: {count:,}.")

    ARCHIVED = "work.archived", _("Archived {what}.")
    ARCHIVED_WITHOUT = "work.archived-without", _("Archived {what}. There was no partition of {missing}.")
    ARCHIVING = "work.archiving", _("{what} is being archived: {step} is next.")
    ARCHIVING_AGAIN = "work.archiving-again", _("{what} is archived again where it changed: {why}.")
    MONTH_CHANGED = "work.month-changed", _("rows of the month from {month:day} on changed while they were archived")
    SPAN_CHANGED = "work.span-changed", _("{span} changed while it was archived")
    SPAN_INCOMPLETE = "work.span-incomplete", _("{span} lacks some of its files")
    ARCHIVING_WAITS = "work.archiving-waits", _("{what} waits until no query reads its tables.")
    ARCHIVING_ELSEWHERE = "work.archiving-elsewhere", _("Archiving skipped: another process is archiving.")
    NOT_ARCHIVED_YET = "work.not-archived-yet", _("{what} cannot be archived yet. {why}")
    CHECKPOINTS_MAY_CHANGE = (
        "work.checkpoints-may-change",
        _("{count:,} of its checkpoints may still change, for example of job {job}."),
    )
    ROLLUPS_NEVER_MADE = (
        "work.rollups-never-made",
        _("The history pipeline, which computes its roll-ups first, has not run yet."),
    )
    ROLLUPS_OF_ANOTHER_SERVER = (
        "work.rollups-of-another-server",
        _("The history pipeline has not run since PostgreSQL was restored on another server."),
    )
    ROLLUPS_BEHIND = (
        "work.rollups-behind",
        _("The history pipeline has not processed all of its changes. It is behind or not running."),
    )
    ROLLUPS_DIFFER = (
        "work.rollups-differ",
        ngettext(
            "The roll-ups of {count:,} day of a job do not match the number of stored checkpoints. Start the "
            "history pipeline without state to build them again.",
            "The roll-ups of {count:,} days of jobs do not match the number of stored checkpoints. Start the "
            "history pipeline without state to build them again.",
            "count",
        ),
    )
    ARCHIVED_LATE = (
        "work.archived-late",
        ngettext(
            "Added late rows to {count:,} file of the archive.",
            "Added late rows to {count:,} files of the archive.",
            "count",
        ),
    )
    NOT_COUNTED_YET = "work.not-counted-yet", _("Late rows of {day:date} are not counted yet: {why}.")
    FILES_MERGED = (
        "work.files-merged",
        ngettext(
            "Merged small files of the archive, {count:,} time.",
            "Merged small files of the archive, {count:,} times.",
            "count",
        ),
    )
    FILES_REMOVED = (
        "work.files-removed",
        ngettext(
            "Deleted {count:,} file of the archive that is older than {days:,} days.",
            "Deleted {count:,} files of the archive that are older than {days:,} days.",
            "count",
        ),
    )

    NO_PIPELINE_CHANGE = "work.no-pipeline-change", _("History pipeline not changed: {why:clause}.")
    PIPELINE_NOT_CHANGED = "work.pipeline-not-changed", _("History pipeline not changed: {problem}")
    PIPELINE_SILENT = "work.pipeline-silent", _("the job manager does not answer")
    PIPELINE_RESTARTING = "work.pipeline-restarting", _("a restart is under way")
    PIPELINE_OFF = "work.pipeline-off", _("it is switched off")
    PIPELINE_DEAD = "work.pipeline-dead", _("recovery restarts it")
    PIPELINE_STOPPING = "work.pipeline-stopping", _("it is being stopped")
    PIPELINE_AS_WANTED = "work.pipeline-as-wanted", _("it is up to date")
    PIPELINE_RESTART_FAILED = "work.pipeline-restart-failed", _("its restart {epoch} failed: {why:clause}")
    PIPELINE_SUBMITTED = "work.pipeline-submitted", _("{name} was submitted.")
    PIPELINE_RUNS_ALREADY = (
        "work.pipeline-runs-already",
        _("{name} is not started: it is already running, and the next poll will find it."),
    )
    PIPELINE_WAITS = "work.pipeline-waits", _("{name} is not started yet: {others} is starting.")
    PIPELINE_RESTART = "work.pipeline-restart", _("Restart {epoch} of {name} decided: {why}")
    PIPELINE_UPGRADED = (
        "work.pipeline-upgraded",
        _("{name} is stopped with a savepoint and continues from it with the program of this version."),
    )
    PIPELINE_CANCELED = "work.pipeline-canceled", _("{name} is cancelled: WAYMARK_HISTORY_PIPELINE is off.")

    NOT_PINGED = "work.not-pinged", _("The dead man's switch is not pinged. {why}")

    STATE_READ = "work.state-read", _("The state of {snapshot} of {job} was read.")
    STATE_NOT_READ = "work.state-not-read", _("The state of {snapshot} of {job} was not read: {problem:clause}.")

    POLLED = "work.polled", _("{cluster}: {events:clauses}.")
    CLUSTER_SILENT = "work.cluster-silent", _("{cluster} does not answer: {why}")
    CLUSTER_REPLACED = "work.cluster-replaced", _("{cluster}: {why}")
    CLUSTER_BACK = "work.cluster-back", _("{cluster} answers again")
    POLL_OVERTAKEN = (
        "work.poll-overtaken",
        _("{cluster}: another poll took over, so the response to this one was discarded."),
    )
    RUN_NEW = "work.run-new", _("{run} is new, {state}")
    RUN_MOVED = "work.run-moved", _("{run} is {state}")
    RUN_MOVED_BECAUSE = "work.run-moved-because", _("{run} is {state} ({why})")
    RUN_RESTARTED = "work.run-restarted", _("{run}: {why}")
    CHECKPOINTS_FAILED = (
        "work.checkpoints-failed",
        ngettext("{count} checkpoint failed", "{count} checkpoints failed", "count"),
    )
    CHECKPOINTS_MISSED = (
        "work.checkpoints-missed",
        ngettext(
            "{count} checkpoint missed: the engine had already discarded it",
            "{count} checkpoints missed: the engine had already discarded them",
            "count",
        ),
    )
    SAVEPOINTS_FOUND = (
        "work.savepoints-found",
        ngettext(
            "{count} savepoint found that another tool took", "{count} savepoints found that other tools took", "count"
        ),
    )
