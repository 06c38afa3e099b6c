"""Removes uploaded programs and cached Python environments that no job needs.

A job has a copy of its program and runs without the upload. The upload is needed to start the job again under another
ID, so it stays for each job that runs here or is shown as ended. A missing environment is made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.jobs.ended_jobs import STORE_ERRORS

logger = logging.getLogger(__name__)

_MOST_OFTEN_S, _LEAST_OFTEN_S = 0.1, 600.0


@contextlib.asynccontextmanager
async def unused_programs_removed(dispatcher: Dispatcher) -> AsyncIterator[None]:
    """Remove unused programs from time to time, while this job manager leads and the block runs."""
    task = asyncio.create_task(_remove_periodically(dispatcher), name="unused programs")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _remove_periodically(dispatcher: Dispatcher) -> None:
    settings = dispatcher.services.settings
    retention_s = min(settings.program_retention_s, settings.environment_retention_s)
    while True:
        await asyncio.sleep(min(max(retention_s / 10, _MOST_OFTEN_S), _LEAST_OFTEN_S))
        try:
            await remove_unused_programs(dispatcher)
        except STORE_ERRORS as error:
            logger.warning("unused programs stay for now: %s", error)


async def remove_unused_programs(dispatcher: Dispatcher) -> None:
    """Remove them now. Do nothing while a stored job is not recovered, because its program is not known yet."""
    services = dispatcher.services
    if not dispatcher.leading:
        return
    io = services.io_threads.of("the removal of programs")
    stored = await io.run(services.high_availability.job_graphs.job_ids)
    known = {job.graph.job_id for job in dispatcher.jobs}
    if not dispatcher.leading or not known.issuperset(stored):
        return
    needed = {job.graph.jar_id for job in dispatcher.jobs}
    needed |= {job.answers["/config"]["launch"]["jarId"] for job in dispatcher.archived_jobs}
    before_ms = services.clock.now_ms() - round(services.settings.program_retention_s * 1000)
    removed = await io.run(lambda: services.programs.remove_unused(needed, before_ms))
    if removed:
        logger.info("removed programs that no job needs: %s", ", ".join(removed))
    environments = {name for job in dispatcher.jobs if not job.status.terminal for name in job.record.environments}
    before_ms = services.clock.now_ms() - round(services.settings.environment_retention_s * 1000)
    removed = await io.run(lambda: services.environments.remove_unused(environments, before_ms))
    if removed:
        logger.info("removed Python environments that no job needs: %s", ", ".join(removed))
