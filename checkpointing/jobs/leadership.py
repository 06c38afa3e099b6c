"""Connects the leader election, which calls from its own threads, with the dispatcher on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any

from checkpointing.ha.leadership import LeaderElection
from checkpointing.jobs.dispatcher import Dispatcher

logger = logging.getLogger(__name__)


class DispatcherContender:
    """Reacts to the election. A leader's address is published only after its dispatcher has recovered the jobs.

    `end_process` is called if this job manager can neither lead nor give up leadership in order.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        election: LeaderElection,
        address: str,
        loop: asyncio.AbstractEventLoop,
        end_process: Callable[[Exception], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._election = election
        self._address = address
        self._loop = loop
        self._end_process = end_process

    def grant_leadership(self, session_id: str) -> None:
        logger.info("leadership granted, session %s", session_id)
        self._on_loop(self._dispatcher.take_leadership(session_id))
        if not self._election.confirm_leadership(session_id, self._address):
            logger.info("leadership of session %s was over before it was confirmed", session_id)

    def revoke_leadership(self) -> None:
        logger.info("leadership revoked")
        self._on_loop(self._dispatcher.give_up_leadership())

    def on_error(self, error: Exception) -> None:
        logger.error("leader election: %s", error)

    def on_fatal_error(self, error: Exception) -> None:
        self._end_process(error)

    def _on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` on the loop and wait for it. Do nothing if the loop is already closed."""
        if self._loop.is_closed():
            work.close()
            return
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except CancelledError:
            logger.info("cut short: the job manager is shutting down")
