"""The Celery tasks. Thin: each calls one function that reads due rows, acts on them and says in a sentence what it did.

A task guards nothing and may run twice or never: the rows hold the truth, and the next tick finds what this one lost.
"""

from __future__ import annotations

import logging

from celery import shared_task
from celery.signals import worker_process_shutdown, worker_shutdown, worker_shutting_down
from django.utils import timezone

log = logging.getLogger(__name__)


@shared_task
def poll_clusters() -> None:
    """Returns at once: the polls themselves go on in a thread of their own, see polling/service.py."""
    from monitoring.polling.service import POLLING

    POLLING.keep_going(_say)


@worker_shutting_down.connect
def no_more_polls(**_: object) -> None:
    from monitoring.polling.service import POLLING

    POLLING.end()


@worker_process_shutdown.connect
@worker_shutdown.connect
def polls_are_given_back(**_: object) -> None:
    from monitoring.polling.service import POLLING

    POLLING.end()
    POLLING.join()


@shared_task
def evaluate_rules() -> None:
    from monitoring.alerts.evaluation import evaluate_due

    _say(evaluate_due(timezone.now()))


@shared_task
def deliver_notifications() -> None:
    from monitoring.alerts.lifecycle import wake_due
    from monitoring.alerts.notify.delivery import deliver_due

    _say(wake_due(timezone.now()))
    _say(deliver_due(timezone.now()))


@shared_task
def advance_savepoints() -> None:
    from monitoring.savepoints.cycle import advance

    _say(advance(timezone.now()))


@shared_task
def apply_retention() -> None:
    from monitoring.savepoints.keeping import apply_retention

    count = apply_retention(timezone.now())
    _say(f"Retention: {count} savepoint{'s' if count != 1 else ''} let go." if count else "")


@shared_task
def advance_recovery() -> None:
    from monitoring.recovery.cycle import advance

    _say(advance(timezone.now()))


def _say(sentence: str) -> None:
    """A tick that found nothing to do says "", or a sentence that begins with "No"."""
    if sentence:
        log.log(logging.DEBUG if sentence.startswith("No") else logging.INFO, "%s", sentence)
