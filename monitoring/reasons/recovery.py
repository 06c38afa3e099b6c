"""Reasons for recovery's decisions about failed jobs, and outcomes of the steps of a restart."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode


class RecoveryReason(ReasonCode):
    # Why recovery does not restart a failed job now.
    NOT_DEAD = "recovery.not-dead", _("the engine does not report its run as failed or lost")
    AUTOMATIC_RESTART_OFF = "recovery.automatic-restart-off", _("automatic restart is off")
    RESTART_UNDER_WAY = "recovery.restart-under-way", _("a restart is under way")
    CLUSTER_SILENT = "recovery.cluster-silent", _("the cluster does not answer")
    NEW_RUN_NOT_POLLED = (
        "recovery.new-run-not-polled",
        _("it was restarted, and its new run has not been polled yet"),
    )
    HELD_DOWN = "recovery.held-down", _("it failed only a moment ago and may still recover")
    CHECKPOINTS_NOT_READ = "recovery.checkpoints-not-read", _("its last checkpoints are still being read")
    BACKOFF = "recovery.backoff", _("restart {number} within an hour is delayed until {until:hh:mm:ss}")

    # Why recovery leaves a failed job to a person.
    START_UNKNOWN = "recovery.start-unknown", _("Waymark does not know how it was started")
    ROWS_WRITTEN_AGAIN = (
        "recovery.rows-written-again",
        _("a restore would write rows a second time, and execution.sinks.after-restore requires a manual decision"),
    )
    LOST = (
        "recovery.lost",
        _("the engine responds but no longer knows the job, and the job's automation requires a manual restart"),
    )
    BREAKER_OPEN = (
        "recovery.breaker-open",
        _("its breaker has been open since {since:minute} ({reason}); close the breaker to resume restarts"),
    )
    CLUSTER_OUTAGE = (
        "recovery.cluster-outage",
        _(
            "{jobs} jobs of its cluster failed within {within:length} of each other, which points to the "
            "cluster and not to the jobs; restarts are on hold until {until:hh:mm}"
        ),
    )
    HOURLY_BUDGET_USED = (
        "recovery.hourly-budget-used",
        ngettext(
            "its budget of {restarts} restart an hour is used up",
            "its budget of {restarts} restarts an hour is used up",
            "restarts",
        ),
    )
    DAILY_BUDGET_USED = (
        "recovery.daily-budget-used",
        ngettext(
            "its budget of {restarts} restart a day is used up",
            "its budget of {restarts} restarts a day is used up",
            "restarts",
        ),
    )
    NOT_RESTARTED = "recovery.not-restarted", _("{job} is dead and is not restarted: {why}.")
    NOT_RESTARTED_AFTER = (
        "recovery.not-restarted-after",
        _("{job} is dead and is not restarted: {why}. Cause of the failure: {cause}."),
    )

    # Why a job is restarted.
    FAILED = "recovery.failed", _("{job} has been FAILED since {since:hh:mm:ss}.")
    FAILED_WITH = "recovery.failed-with", _("{job} has been FAILED since {since:hh:mm:ss}: {cause}.")
    UNKNOWN_TO_ENGINE = (
        "recovery.unknown-to-engine",
        _("The engine has responded since {since:hh:mm:ss} but no longer knows {job}."),
    )
    UNKNOWN_TO_ENGINE_WITH = (
        "recovery.unknown-to-engine-with",
        _("The engine has responded since {since:hh:mm:ss} but no longer knows {job}: {cause}."),
    )
    RESTART_ASKED = "recovery.restart-asked", _("{by} requested a restart from {state}.")
    CHANGE_ASKED = "recovery.change-asked", _("{by} asked to {what}, from {state}.")
    CHANGE_ASKED_NOTED = "recovery.change-asked-noted", _("{by} asked to {what} ({note}), from {state}.")
    RESCALE = "recovery.rescale", _("rescale it from {was} to {now}")
    DEFAULT_PARALLELISM = "recovery.default-parallelism", _("the default")
    START_WITH = "recovery.start-with", _("start it with {launch}")
    ANOTHER_LAUNCH = "recovery.another-launch", _("another {fields}")
    START_ANEW = "recovery.start-anew", _("start it again")
    NEW_HISTORY_PROGRAM = "recovery.new-history-program", _("start the history's new program")
    CLONE_ASKED = "recovery.clone-asked", _("{by} asked to clone {job}, from {state}.")
    SUBMITTED = "recovery.submitted", _("{by} submitted {job}, to start from {state}.")
    RUN_ASKED = "recovery.run-asked", _("{by} asked to run {job} again, from {state}.")
    RUN_SCHEDULED = (
        "recovery.run-scheduled",
        _("The schedule requested the run of {job} that was due at {due:minute}, from {state}."),
    )
    CHANGE_UNDONE = (
        "recovery.change-undone",
        _(
            "The job does not start with the changes of restart {epoch}. Waymark starts it without them, "
            "from the same snapshot."
        ),
    )

    HISTORY_STOPPED = (
        "recovery.history-stopped",
        _("{job} is {state}, but WAYMARK_HISTORY_PIPELINE requires it to run."),
    )

    # Why a requested restart is refused: the field, its value, and what is allowed.
    BAD_AUTOMATION = "recovery.bad-automation", _("automation is {value}: {allowed}.")
    BAD_CLUSTER = "recovery.bad-cluster", _("cluster is {value}: {allowed}.")
    BAD_MANAGED_ELSEWHERE = "recovery.bad-managed-elsewhere", _("managed_elsewhere is {value}: {allowed}.")
    BAD_NAME = "recovery.bad-name", _("name is {value}: {allowed}.")
    BAD_PATH = "recovery.bad-path", _("path is {value}: {allowed}.")
    BAD_PROGRAM = "recovery.bad-program", _("program is {value}: {allowed}.")
    BAD_SAVEPOINT = "recovery.bad-savepoint", _("savepoint is {value}: {allowed}.")
    BAD_STATE = "recovery.bad-state", _("state is {value}: {allowed}.")
    BAD_STOP = "recovery.bad-stop", _("stop is {value}: {allowed}.")
    CLUSTER_NEEDED = "recovery.cluster-needed", _("a cluster that responds is needed")
    MANAGED_ELSEWHERE = "recovery.managed-elsewhere", _("another tool restarts this job")
    OPERATED = (
        "recovery.operated",
        _(
            "the Flink operator restarts this job; Waymark may restart it through the operator only if "
            "the source {source} allows it"
        ),
    )
    ONLY_RESTARTED = (
        "recovery.only-restarted",
        _("the Flink operator runs this job. Change the resource to start it in another way"),
    )
    OPERATOR_NEEDED = "recovery.operator-needed", _("a job that the Flink operator runs is needed")
    CHANGE_NEEDED = "recovery.change-needed", _("at least one changed value is needed")
    UPGRADE_MODE_NEEDED = (
        "recovery.upgrade-mode-needed",
        _("savepoint or last-state as the upgradeMode of the resource, or choose a snapshot"),
    )
    NAME_NEEDED = "recovery.name-needed", _("a name of at most {most} characters is needed")
    FREE_NAME_NEEDED = "recovery.free-name-needed", _("a name that no job of {cluster} has is needed")
    PATH_NEEDED = (
        "recovery.path-needed",
        _("the path of a savepoint or retained checkpoint is needed"),
    )
    SAVEPOINT_OF_JOB_NEEDED = "recovery.savepoint-of-job-needed", _("a savepoint of {job} is needed")
    COMPLETED_SAVEPOINT_NEEDED = (
        "recovery.completed-savepoint-needed",
        _("a completed savepoint is needed"),
    )
    SAVEPOINT_TO_CLONE_NEEDED = (
        "recovery.savepoint-to-clone-needed",
        _("a clone starts only from a savepoint of this job"),
    )
    FILES_GONE = (
        "recovery.files-gone",
        _("its files were deleted outside Waymark; choose another snapshot"),
    )
    FILES_DISPOSED = (
        "recovery.files-disposed",
        _("its files are deleted or are being deleted; choose another snapshot"),
    )
    NOT_OFFERED = "recovery.not-offered", _("choose one of the snapshots listed below")
    NOT_STOPPED_WITH_SAVEPOINT = (
        "recovery.not-stopped-with-savepoint",
        _("{state} exists only if the job is stopped with a savepoint"),
    )
    CHOOSE_SAVEPOINT = (
        "recovery.choose-savepoint",
        _("the job is not running; choose the savepoint to start from"),
    )
    NEVER_RAN = "recovery.never-ran", _("the job has never run here, so submit it first")
    STILL_RUNS = (
        "recovery.still-runs",
        _("the job is still running. Wait until it ends, or restart it from a savepoint"),
    )
    NO_STATE_TO_CONTINUE = (
        "recovery.no-state-to-continue",
        _(
            "the job has no known savepoint or retained checkpoint, and a run without state would read its "
            "input from the beginning again"
        ),
    )
    OPEN_AUTOMATIC = (
        "recovery.open-automatic",
        _("{job} is being restarted already: restart {epoch}, automatic."),
    )
    OPEN_MANUAL = (
        "recovery.open-manual",
        _("{job} is being restarted already: restart {epoch}, manual."),
    )
    OPEN_AGAIN = (
        "recovery.open-again",
        _("{job} is being restarted already: restart {epoch}, again."),
    )
    OPEN_SCHEDULED = (
        "recovery.open-scheduled",
        _("{job} is being restarted already: restart {epoch}, scheduled."),
    )
    OPEN_UNKNOWN = (
        "recovery.open-unknown",
        _("{job} is being restarted already: another decision."),
    )

    # The state that a job is started from.
    CHECKPOINT = "recovery.checkpoint", _("checkpoint {number} of run {run}, taken {at:second}")
    SAVEPOINT = "recovery.savepoint", _("savepoint {number} of run {run}, taken {at:second}")
    UNNUMBERED_CHECKPOINT = "recovery.unnumbered-checkpoint", _("checkpoint of run {run}, taken {at:second}")
    UNNUMBERED_SAVEPOINT = "recovery.unnumbered-savepoint", _("savepoint of run {run}, taken {at:second}")
    SAVEPOINT_OF_THE_STOP = "recovery.savepoint-of-the-stop", _("the savepoint taken when the job stops")
    EMPTY_STATE = "recovery.empty-state", _("an empty state")
    NO_BATCH_YET = "recovery.no-batch-yet", _("an empty state, because none of its runs has completed a batch")

    # The actions of a cycle.
    PAUSE_OVER = "recovery.pause-over", _("The pause of {job} has ended.")
    BREAKER_OPENED = "recovery.breaker-opened", _("The breaker of {job} opened: {reason}.")
    NEEDS_PERSON = "recovery.needs-person", _("{job} needs manual action: {reason}.")
    LEFT = "recovery.left", _("{job} is not restarted for now: {reason}.")
    RESTART_DECIDED = "recovery.restart-decided", _("Restart {epoch} of {job} decided: {reason}")
    RESTART_FAILED = "recovery.restart-failed", _("Restart {epoch} of {job} failed: {why}")
    RESTARTS_MOVED = "recovery.restarts-moved", _("Restarts: {outcomes}.")
    BACK_AGAIN = "recovery.back-again", _("{jobs} running again.")
    JOB_IS = "recovery.job-is", _("the job is {state}.")
    JOB_IS_BACK = "recovery.job-is-back", _("the job is running again.")
    RUN_MISSED = "recovery.run-missed", _("The run that was due at {due:minute} was not started: {why}")
    RUN_WAITS = "recovery.run-waits", _("The run that was due at {due:minute} waits: {why}")
    RUN_OF_JOB = "recovery.run-of-job", _("{job}: {problem}")

    # The outcomes of attempts in a cycle.
    WAITING = "recovery.waiting", _("{count} waiting")
    SUCCEEDED = "recovery.succeeded", _("{count} succeeded")
    ENDED_FAILED = "recovery.ended-failed", _("{count} failed")
    CANCELED = "recovery.canceled", _("{count} canceled")
    OVERTAKEN = "recovery.overtaken", _("{count} already handled by another worker")

    # The end of an attempt in any stage.
    OUT_OF_TIME = "recovery.out-of-time", _("Gave up after the time limit; last result: {last}")
    CANCELED_BY = "recovery.canceled-by", _("Canceled by {by}.")
    AUTOMATION_PAUSED = "recovery.automation-paused", _("Nothing was started: {why}.")
    DIED_AGAIN = (
        "recovery.died-again",
        _(
            "The job recovered by itself and then failed again. Nothing was started. "
            "Waymark decides about the new failure."
        ),
    )
    # A step waits for an answer of the engine.
    ENGINE_SAID = "recovery.engine-said", _("{answer}")

    # Texts of the steps that detect the failure.
    RUN_ENDED = "recovery.run-ended", _("Run {run} ended at {at:hh:mm:ss}.")

    # Texts of the steps that check and upload the program.
    STARTED_BY_COMMAND = "recovery.started-by-command", _("It is started by a command.")
    STARTED_BY_OPERATOR = "recovery.started-by-operator", _("The Flink operator starts it, by {resource}.")
    STOPPED_BY_OPERATOR = "recovery.stopped-by-operator", _("The Flink operator stops it.")
    LATEST_STATE = "recovery.latest-state", _("its latest state")
    SAVED_BEFORE = "recovery.saved-before", _("Its state is saved at {path}. The Flink operator stops it.")
    SAVING_BEFORE_REDEPLOY = "recovery.saving-before-redeploy", _("The savepoint is in progress.")
    SOURCE_GONE = (
        "recovery.source-gone",
        _("The source that has found {resource} was removed or disabled, or may no longer change resources."),
    )
    REDEPLOY_ASKED = (
        "recovery.redeploy-asked",
        _("{resource} is changed. The Flink operator has not deployed the job yet; it will as soon as it can."),
    )
    OPERATOR_SAYS = (
        "recovery.operator-says",
        _("{resource} is changed. The Flink operator has not deployed the job yet: {error}"),
    )
    ROLLED_BACK = (
        "recovery.rolled-back",
        _(
            "The Flink operator has rolled {resource} back to its last stable specification, and reports: {error}. "
            "The resource still contains the change."
        ),
    )
    REDEPLOYED = "recovery.redeployed", _("The Flink operator has deployed {resource} as job {id}.")
    NOT_REDEPLOYED = "recovery.not-redeployed", _("The Flink operator was not asked to restart it. {why}")
    PROGRAM_ON_CLUSTER = "recovery.program-on-cluster", _("{program} is on the cluster.")
    PROGRAMS_REFUSED = (
        "recovery.programs-refused",
        _("The cluster does not accept programs (Flink: web.submit.enable): {answer}"),
    )
    PROGRAM_LOST = (
        "recovery.program-lost",
        _("{program} is not on the cluster, and Waymark keeps no copy of it. Upload the program again."),
    )
    PROGRAM_TO_UPLOAD = (
        "recovery.program-to-upload",
        _("{program} is no longer on the cluster; Waymark has a copy."),
    )
    PROGRAM_DAMAGED = "recovery.program-damaged", _("{damage} Upload the program again.")
    PROGRAM_UPLOADED = "recovery.program-uploaded", _("{program} is on the cluster again, as {id}.")
    PROGRAM_REFUSED = "recovery.program-refused", _("The cluster rejected the program: {answer}")

    # Texts of the steps that copy the checkpoint location.
    IMPORTED = (
        "recovery.imported",
        _("Copied to savepoint {path}. The checkpoint location is not changed."),
    )
    IMPORTING = (
        "recovery.importing",
        _("The state is being copied. The checkpoint location is not changed."),
    )
    IMPORT_LOST = "recovery.import-lost", _("The cluster lost the copy. Waymark requests it again.")
    IMPORT_FAILED = "recovery.import-failed", _("The checkpoint location cannot be imported: {why}")
    NO_IMPORTS_HERE = (
        "recovery.no-imports-here",
        _("the cluster cannot import checkpoint locations. Only Waymark's job manager can."),
    )

    # Texts of the steps that check the snapshot.
    STATE_OF_THE_STOP = (
        "recovery.state-of-the-stop",
        _("The job is stopped with a savepoint and continues from it."),
    )
    WITHOUT_STATE = "recovery.without-state", _("The job starts without state.")
    NO_STATE_YET = "recovery.no-state-yet", _("The job has no state: none of its runs has completed a batch.")
    CANNOT_BE_CHECKED = (
        "recovery.cannot-be-checked",
        _("{path}: this cluster cannot check a snapshot before it is used."),
    )
    USED_UNCHECKED = "recovery.used-unchecked", _("{why}; the snapshot is used without a check.")
    STATE_COMPLETE = "recovery.state-complete", _("{path} is complete.")
    STATE_REJECTED = "recovery.state-rejected", _("{path} cannot be restored: {why:clause}.")
    STARTS_EMPTY = (
        "recovery.starts-empty",
        _("No snapshot could be restored. The job starts without state, because its configuration allows this."),
    )
    STATE_TOO_OLD = (
        "recovery.state-too-old",
        _("it was {age:length} old when the job failed, and the job allows at most {allowed:length}"),
    )
    NO_STATE_KNOWN = (
        "recovery.no-state-known",
        _(
            "There is no savepoint or retained checkpoint to restore from, and Waymark does not start the job "
            "without state."
        ),
    )
    ALL_STATES_REJECTED = (
        "recovery.all-states-rejected",
        ngettext(
            "The only snapshot could not be restored, and Waymark does not start the job without state; "
            "last error: {why}",
            "None of the {count} snapshots could be restored, and Waymark does not start the job without state; "
            "last error: {why}",
            "count",
        ),
        "recovery.only-state-rejected",
    )

    # Texts of the steps that stop the job.
    MAY_BE_TAKEN_BACK = (
        "recovery.may-be-taken-back",
        _("The job has just FAILED, but the engine may still recover it. Waymark waits for that."),
    )
    MAY_COME_BACK = "recovery.may-come-back", _("The job has ended, but the engine may start it again: {why}")
    NEXT_LEADER_MAY_START = (
        "recovery.next-leader-may-start",
        _(
            "The job has ended, but the next leader may start it again: this Flink is highly available "
            "({kind}), and Waymark cannot read its job store. Waymark waits until {until:hh:mm:ss}."
        ),
    )
    JOB_LIVES = "recovery.job-lives", _("The job is still active: {id} is {state}. Nothing was started.")
    OTHER_RUN_NOT_STOPPED = (
        "recovery.other-run-not-stopped",
        _("Another run of this job, {id}, is {state}. It was not stopped, and nothing was started."),
    )
    STATE_GONE = "recovery.state-gone", _("{path} no longer exists, so the job was not stopped: {why}")
    NOT_RUNNING = "recovery.not-running", _("The job is not running.")
    STOPPED = "recovery.stopped", _("Stopped.")
    STOPPED_AND_SAVED = "recovery.stopped-and-saved", _("Stopped. Its state is saved at {path}.")
    STOPPED_TO_GO_ON = "recovery.stopped-to-go-on", _("Stopped. The job continues from {path}.")
    ENDED_WITHOUT_SAVEPOINT = (
        "recovery.ended-without-savepoint",
        _("The job ended before it could be stopped with a savepoint. Nothing was started; choose a snapshot."),
    )
    ENDED_SAVEPOINT_FAILED = (
        "recovery.ended-savepoint-failed",
        _("The job ended and its savepoint failed: {failure} Nothing was started; choose a snapshot."),
    )
    SAVEPOINT_NOT_KNOWN_YET = (
        "recovery.savepoint-not-known-yet",
        _("The job has stopped. Waymark waits for the path of its savepoint."),
    )
    CANCELLING = "recovery.cancelling", _("Cancelling; the job is {state}.")
    SAVEPOINT_FAILED = (
        "recovery.savepoint-failed",
        _("The savepoint failed, so the job was not stopped: {failure}"),
    )
    STOPPING_WITH_SAVEPOINT = (
        "recovery.stopping-with-savepoint",
        _("Stopping with a savepoint; the job is {state}."),
    )
    SAVED_CANCELLING = (
        "recovery.saved-cancelling",
        _("The savepoint is complete. Cancelling the job and keeping its checkpoints; the job is {state}."),
    )
    SAVING_BEFORE_CANCEL = (
        "recovery.saving-before-cancel",
        _("Taking a savepoint before the job is cancelled; the job is {state}."),
    )
    SAVEPOINT_DEFERRED = (
        "recovery.savepoint-deferred",
        _("The job cannot be stopped with a savepoint yet: {reason}."),
    )
    STOP_ASKED = "recovery.stop-asked", _("Stopping with a savepoint.")
    SAVEPOINT_ASKED = "recovery.savepoint-asked", _("Taking a savepoint before the job is cancelled.")

    # Texts of the steps that start the job.
    NO_STATE_TO_RESTORE = (
        "recovery.no-state-to-restore",
        _("There is no snapshot to restore, and Waymark does not start the job without state."),
    )
    STARTED = "recovery.started", _("Started as {id} {how}.")
    CLUSTER_STARTING = (
        "recovery.cluster-starting",
        _("The command has started {id}. Waymark waits until its new cluster answers."),
    )
    CLUSTER_ACCEPTED = (
        "recovery.cluster-accepted",
        _("Restart {epoch} of {job} started another cluster, which answers at the same address and runs the job."),
    )
    FROM_STATE = "recovery.from-state", _("from {path}")
    FROM_NOTHING = "recovery.from-nothing", _("without state")
    OTHER_RUN_ENDED = (
        "recovery.other-run-ended",
        _("Another run of this job, {id}, was started in the meantime and is {state}. Nothing was started."),
    )
    OTHER_RUN_LIVES = (
        "recovery.other-run-lives",
        _("A run of this job, {id}, is already {state}. Nothing was started."),
    )
    PROGRAM_GONE = "recovery.program-gone", _("The program is no longer on the cluster: {answer}")
    LOOKED_FOR = "recovery.looked-for", _("Waymark checks whether the engine has started {id}: {answer}")
    COMMAND_NOT_RUN = "recovery.command-not-run", _("The launch command was not run: {why}.")
    START_REFUSED = "recovery.start-refused", _("The engine refused to start the job {how}: {why}")
    PROGRAM_LOST_AGAIN = (
        "recovery.program-lost-again",
        ngettext(
            "The cluster lost the program {count} time before it could be started.",
            "The cluster lost the program {count} times before it could be started.",
            "count",
        ),
    )
    COMMAND_RUN_IN_VAIN = (
        "recovery.command-run-in-vain",
        _("The launch command was run {times}, but the engine does not know {id}."),
    )
    START_ASKED_IN_VAIN = (
        "recovery.start-asked-in-vain",
        _("The start was requested {times}, but the engine does not know {id}."),
    )
    WITH_LAST_ANSWER = "recovery.with-last-answer", _("{what} {answer}")
    TIMES = "recovery.times", ngettext("once", "{count} times", "count"), "recovery.once"
    NOT_KNOWN_YET = "recovery.not-known-yet", _("The engine does not know {id} yet.")

    # Texts of the steps that wait until it runs.
    NOT_NAMED = "recovery.not-named", _("The engine does not list {id}.")
    OPERATOR_NOT_RUNNING = (
        "recovery.operator-not-running",
        _("The new run is RUNNING, but {name} is not yet."),
    )
    OPERATORS_NOT_RUNNING = (
        "recovery.operators-not-running",
        _("The new run is RUNNING, but {count} of its operators are not yet."),
    )
    ENVIRONMENT_PREPARED = (
        "recovery.environment-prepared",
        _("The new run is {state}, and its Python environment is being prepared."),
    )
    WAITS_FOR_TURN = "recovery.waits-for-turn", _("The new run is {state} and waits for its turn to start.")
    NEW_RUN_IS = "recovery.new-run-is", _("The new run is {state}.")
    NEW_RUN_SAYS = "recovery.new-run-says", _("The new run is {state}: {failure}")
    NO_REASON_GIVEN = "recovery.no-reason-given", _("the engine gives no reason.")
    NEW_RUN_NOT_READ = (
        "recovery.new-run-not-read",
        _("The new run is {state}. Waymark has not polled it yet."),
    )
