"""Reasons why Waymark may be unable to monitor, and problems of its components."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode


class HealthReason(ReasonCode):
    BLIND = "health.blind", _("Waymark cannot monitor the jobs: {findings:sentences}")
    SEES_WITH_WARNINGS = (
        "health.sees-with-warnings",
        _("Waymark monitors the jobs, but a component needs attention. {findings:sentences}"),
    )
    SEES = "health.sees", _("All components are healthy. All clusters are polled on schedule.")

    DATABASE_SILENT = "health.database-silent", _("The database does not answer: {why}.")
    REDIS_SILENT = "health.redis-silent", _("Redis does not answer: {why}.")
    NO_BEAT = "health.no-beat", _("No scheduler (beat) is running, so no tasks are started.")
    NO_WORKER = "health.no-worker", _("No worker processes tasks.")
    NO_WORKER_FOR_QUEUE = (
        "health.no-worker-for-queue",
        ngettext(
            "No worker processes tasks; {count} task is queued.",
            "No worker processes tasks; {count} tasks are queued.",
            "count",
        ),
    )
    CLOCK_AHEAD = "health.clock-ahead", _("This machine's clock is {length:length} ahead of the database's.")
    CLOCK_BEHIND = "health.clock-behind", _("This machine's clock is {length:length} behind the database's.")

    TASK_NEVER_ENDED = "health.task-never-ended", _("The task “{task}” has never completed.")
    TASK_OVERDUE = "health.task-overdue", _("The task “{task}” last completed {age:length} ago.")
    TASK_FAILS = "health.task-fails", _("{what:clause}; it fails: {failure:clause}.")

    NONE_POLLED = "health.none-polled", _("No cluster has been polled for {length:length}.")
    ALL_SILENT = (
        "health.all-silent",
        _("None of the {count} clusters answers; is this machine cut off from its network?"),
    )
    ANOTHER_CLUSTER = "health.another-cluster", _("Another cluster answers at the address of {clusters}.")
    CLUSTER_OVERDUE = (
        "health.cluster-overdue",
        _("{clusters} has not been polled on schedule: the workers cannot keep up."),
    )
    CLUSTERS_OVERDUE = (
        "health.clusters-overdue",
        _("{clusters} have not been polled on schedule: the workers cannot keep up."),
    )
    CLUSTER_SILENT = "health.cluster-silent", _("{clusters} does not respond.")
    CLUSTERS_SILENT = "health.clusters-silent", _("{clusters} do not respond.")
    OF_CLUSTERS = (
        "health.of-clusters",
        ngettext("{count} of {all} cluster", "{count} of {all} clusters", "all"),
        "health.of-cluster",
    )

    DELIVERY_WAITS = "health.delivery-waits", _("A notification has waited for {length:length} to be delivered.")
    NOTIFICATIONS_GIVEN_UP = (
        "health.notifications-given-up",
        ngettext(
            "{count} notification of the last day could not be delivered.",
            "{count} notifications of the last day could not be delivered.",
            "count",
        ),
        "health.notification-given-up",
    )

    NO_ROLLUPS = (
        "health.no-rollups",
        _("The history pipeline does not compute roll-ups, so long charts load slowly: {why:clause}."),
    )
    PIPELINE_NEVER_STARTED = "health.pipeline-never-started", _("it was never started")
    PIPELINE_IS = "health.pipeline-is", _("it is {state}")
    PIPELINE_IS_PAUSED = "health.pipeline-is-paused", _("it is {state} and {pause}")
    PIPELINE_IS_BECAUSE = "health.pipeline-is-because", _("it is {state}: {why}")

    ARCHIVED_FILES_UNREADABLE = (
        "health.archived-files-unreadable",
        ngettext(
            "{count} file of the history's archive cannot be read: {problem}.",
            "{count} files of the history's archive cannot be read, one of them: {problem}.",
            "count",
        ),
        "health.archived-file-unreadable",
    )


class TaskName(ReasonCode):
    """The names of the periodic tasks in these reasons."""

    ADVANCE_RECOVERY = "task.advance-recovery", _("advance recovery")
    ADVANCE_SAVEPOINTS = "task.advance-savepoints", _("advance savepoints")
    ANSWER_STATE_READS = "task.answer-state-reads", _("answer state reads")
    APPLY_INVENTORY = "task.apply-inventory", _("apply inventory")
    APPLY_JOB_DEFAULTS = "task.apply-job-defaults", _("apply job defaults")
    APPLY_RETENTION = "task.apply-retention", _("apply retention")
    ARCHIVE_HISTORY = "task.archive-history", _("archive history")
    DELIVER_NOTIFICATIONS = "task.deliver-notifications", _("deliver notifications")
    EVALUATE_RULES = "task.evaluate-rules", _("evaluate rules")
    KEEP_HISTORY_PIPELINE = "task.keep-history-pipeline", _("run history pipeline")
    KEEP_PARTITIONS = "task.keep-partitions", _("create partitions")
    KEEP_PROGRAMS = "task.keep-programs", _("copy programs")
    MEASURE_OBJECTIVES = "task.measure-objectives", _("measure objectives")
    PING_DEAD_MAN = "task.ping-dead-man", _("send heartbeat")
    POLL_CLUSTERS = "task.poll-clusters", _("poll clusters")
    WATCH_DISCOVERIES = "task.watch-discoveries", _("find clusters")
