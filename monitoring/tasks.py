"""The Celery tasks. Each calls one function that reads due rows, acts on them and reports what it did.

A task may run twice or not at all: the rows are the source of truth, and the next tick finds unfinished work.
"""

from __future__ import annotations

from celery import shared_task
from celery.signals import worker_process_shutdown, worker_shutdown, worker_shutting_down

from monitoring import clock
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason
from monitoring.selfwatch.ticks import log_failure, log_report, recorded


@shared_task
@recorded
def poll_clusters() -> None:
    """Keep the poller's thread running (polling/service.py), and return at once."""
    from monitoring.polling.service import POLLING

    POLLING.keep_going(log_report)


@shared_task
@recorded
def watch_discoveries() -> None:
    """Start a thread for each source that is due (discovery/rounds.py), and return at once."""
    from monitoring.discovery.rounds import ROUNDS

    ROUNDS.start_due(log_report, log_failure)


@worker_shutting_down.connect
def stop_polling(**_: object) -> None:
    from monitoring.discovery.rounds import ROUNDS
    from monitoring.polling.service import POLLING

    POLLING.end()
    ROUNDS.end()


@worker_process_shutdown.connect
@worker_shutdown.connect
def release_polls(**_: object) -> None:
    from monitoring.discovery.rounds import ROUNDS
    from monitoring.polling.service import POLLING

    POLLING.end()
    ROUNDS.end()
    POLLING.join()
    ROUNDS.join()


@shared_task
@recorded
def evaluate_rules() -> CycleReport:
    from monitoring.alerts.evaluation import evaluate_due

    return evaluate_due(clock.now())


@shared_task
@recorded
def measure_objectives() -> None:
    from monitoring.alerts.objectives import measure_due

    measure_due(clock.now())


@shared_task
@recorded
def deliver_notifications() -> CycleReport:
    from monitoring.alerts.lifecycle import wake_due
    from monitoring.notify.delivery import deliver_due

    log_report(wake_due(clock.now()))
    return deliver_due(clock.now())


@shared_task
@recorded
def advance_savepoints() -> CycleReport:
    from monitoring.savepoints.cycle import advance

    return advance(clock.now())


@shared_task
@recorded
def apply_retention() -> CycleReport | None:
    from django.conf import settings

    from monitoring.notify.forgetting import forget_old
    from monitoring.programs import discard_unused
    from monitoring.savepoints.copies import forget_ended
    from monitoring.savepoints.retention_actions import apply_retention

    now = clock.now()
    forget_ended(now)
    counts = (
        (apply_retention(now), WorkReason.SAVEPOINTS_COUNTED),
        (forget_old(now, settings.MESSAGES_KEPT), WorkReason.MESSAGES),
        (discard_unused(now), WorkReason.PROGRAMS),
    )
    gone = [code(count=count) for count, code in counts if count]
    return CycleReport((WorkReason.RETENTION(gone=gone),)) if gone else None


@shared_task
@recorded
def keep_programs() -> CycleReport | None:
    from monitoring.programs import copy_missing_programs

    count = copy_missing_programs(clock.now())
    return CycleReport((WorkReason.PROGRAMS_COPIED(count=count),)) if count else None


@shared_task
@recorded
def keep_partitions() -> CycleReport:
    from monitoring.history.forgetting import forget
    from monitoring.history.partitions import make_ahead

    log_report(make_ahead(clock.now()))
    return forget(clock.now())


@shared_task
@recorded
def archive_history() -> CycleReport:
    from monitoring.history.archive.due import look

    return look(clock.now())


@shared_task
@recorded
def keep_history_pipeline() -> CycleReport | None:
    from monitoring.history_job import keep_running

    return keep_running(clock.now())


@shared_task
@recorded
def advance_recovery() -> CycleReport:
    from django.conf import settings

    from monitoring.recovery.planned import tick

    return tick(clock.now, settings.RECOVERY_EVERY)


@shared_task
@recorded
def apply_job_defaults() -> CycleReport | None:
    from monitoring import audit
    from monitoring.job_defaults import apply_defaults

    count = apply_defaults(audit.AUTOMATION, clock.now())
    return CycleReport((WorkReason.DEFAULTS_APPLIED(count=count),)) if count else None


@shared_task
@recorded
def ping_dead_man() -> CycleReport | None:
    from monitoring.selfwatch.dead_man import ping

    return ping(clock.now())


@shared_task
@recorded
def answer_state_reads() -> CycleReport | None:
    from monitoring.state_reads.answering import run_next_read

    return run_next_read(clock.now())
