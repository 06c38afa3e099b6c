"""Reasons why Waymark may be unable to monitor, and problems of its components."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import ReasonCode


class HealthReason(ReasonCode):
    BLIND = "health.blind", _("Waymark is blind: {findings:sentences}")
    SEES_WITH_WARNINGS = "health.sees-with-warnings", _("Waymark sees. {findings:sentences}")
    SEES = "health.sees", _("Waymark sees: every part answers and every cluster is asked in time.")

    DATABASE_SILENT = "health.database-silent", _("The database does not answer: {why}.")
    REDIS_SILENT = "health.redis-silent", _("Redis does not answer: {why}.")
    NO_BEAT = "health.no-beat", _("No beat ticks, so nobody is told to look.")
    NO_WORKER = "health.no-worker", _("No worker takes ticks.")
    NO_WORKER_FOR_QUEUE = "health.no-worker-for-queue", _("No worker takes ticks; {count} ticks wait.")
    CLOCK_AHEAD = "health.clock-ahead", _("This machine's clock is {length:length} ahead of the database's.")
    CLOCK_BEHIND = "health.clock-behind", _("This machine's clock is {length:length} behind the database's.")

    TASK_NEVER_ENDED = "health.task-never-ended", _("The task “{task}” has never come to its end.")
    TASK_OVERDUE = "health.task-overdue", _("The task “{task}” last came to its end {age:length} ago.")
    TASK_FAILS = "health.task-fails", _("{what:clause}; it fails: {failure}.")

    NONE_POLLED = "health.none-polled", _("No cluster has been asked for {length:length}.")
    ALL_SILENT = (
        "health.all-silent",
        _("None of the {count} clusters answers; is this machine cut off from its network?"),
    )
    ANOTHER_CLUSTER = "health.another-cluster", _("At the address of {clusters} another one answers.")
    CLUSTER_OVERDUE = (
        "health.cluster-overdue",
        _("{clusters} has not been asked in time: the workers do not keep up."),
    )
    CLUSTERS_OVERDUE = (
        "health.clusters-overdue",
        _("{clusters} have not been asked in time: the workers do not keep up."),
    )
    CLUSTER_SILENT = "health.cluster-silent", _("{clusters} gives no answer.")
    CLUSTERS_SILENT = "health.clusters-silent", _("{clusters} give no answer.")
    OF_CLUSTER = "health.of-cluster", _("{count} of {all} cluster")
    OF_CLUSTERS = "health.of-clusters", _("{count} of {all} clusters")

    DELIVERY_WAITS = "health.delivery-waits", _("A notification has waited for {length:length} to be delivered.")
    NOTIFICATION_GIVEN_UP = (
        "health.notification-given-up",
        _("{count} notification of the last day could not be delivered."),
    )
    NOTIFICATIONS_GIVEN_UP = (
        "health.notifications-given-up",
        _("{count} notifications of the last day could not be delivered."),
    )

    NO_ROLLUPS = (
        "health.no-rollups",
        _("The history's roll-ups are not being made, so long charts take longer: {why:clause}."),
    )
    PIPELINE_NEVER_STARTED = "health.pipeline-never-started", _("it was never started")
    PIPELINE_IS = "health.pipeline-is", _("it is {state}")
    PIPELINE_IS_PAUSED = "health.pipeline-is-paused", _("it is {state} and {pause}")
    PIPELINE_IS_BECAUSE = "health.pipeline-is-because", _("it is {state}: {why}")

    ARCHIVED_FILE_UNREADABLE = (
        "health.archived-file-unreadable",
        _("{count} file of the history's archive cannot be read: {problem}."),
    )
    ARCHIVED_FILES_UNREADABLE = (
        "health.archived-files-unreadable",
        _("{count} files of the history's archive cannot be read, one of them: {problem}."),
    )


class TaskName(ReasonCode):
    """The names of the periodic tasks in these reasons."""

    ADVANCE_RECOVERY = "task.advance-recovery", _("advance recovery")
    ADVANCE_SAVEPOINTS = "task.advance-savepoints", _("advance savepoints")
    ANSWER_STATE_READS = "task.answer-state-reads", _("answer state reads")
    APPLY_RETENTION = "task.apply-retention", _("apply retention")
    ARCHIVE_HISTORY = "task.archive-history", _("archive history")
    DELIVER_NOTIFICATIONS = "task.deliver-notifications", _("deliver notifications")
    EVALUATE_RULES = "task.evaluate-rules", _("evaluate rules")
    KEEP_HISTORY_PIPELINE = "task.keep-history-pipeline", _("keep history pipeline")
    KEEP_PARTITIONS = "task.keep-partitions", _("keep partitions")
    KEEP_PROGRAMS = "task.keep-programs", _("keep programs")
    PING_DEAD_MAN = "task.ping-dead-man", _("ping dead man")
    POLL_CLUSTERS = "task.poll-clusters", _("poll clusters")
