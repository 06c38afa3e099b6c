"""A driver in a pod, with the interface of a driver process: follow it, end it, and find out why it ended."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.daemon_threads import in_daemon_thread
from checkpointing.jobs.attempts import LOG_NAME
from checkpointing.jobs.launcher import Loss
from checkpointing.jobs.launching.kubernetes.api import ApiRefused, ApiUnreachable, KubernetesApi
from checkpointing.jobs.launching.kubernetes.conditions import loss_of, not_started
from checkpointing.jobs.launching.kubernetes.log import PodLog
from checkpointing.jobs.launching.kubernetes.observer import Known, PodId, PodObserver
from checkpointing.jobs.launching.processes import tail

logger = logging.getLogger(__name__)

_POLL_S = 0.1
_LAST_LINES_S = 5.0
# Longer than a kubelet takes to report that a container has ended.
_SILENCE_S = 30.0


class PodProcess:
    """The process of one pod. `start_limit_s` is how long the pod may wait for a node, an image or a volume."""

    pid = None

    def __init__(
        self,
        pod: PodId,
        work: Path,
        api: KubernetesApi,
        observer: PodObserver,
        clock: Clock,
        start_limit_s: float,
    ) -> None:
        self._pod = pod
        self._work = work
        self._api = api
        self._observer = observer
        self._clock = clock
        self._start_limit_s = start_limit_s
        self._loss: Loss | None = None
        self._last_known: Known | None = None
        self._log = PodLog(api, pod, work, self._known, clock)

    @property
    def has_started(self) -> bool:
        facts = self._known().facts
        return facts is not None and (facts.has_started or facts.has_ended)

    @property
    def loss(self) -> Loss | None:
        return self._loss

    @property
    def left_nothing(self) -> bool:
        """Return whether the kubelet reported the end. A deleted pod may still run on a node that cannot be reached."""
        facts = self._known().facts
        return facts is not None and facts.exit_code is not None

    @property
    def is_closed(self) -> bool:
        return self._last_known is not None

    async def wait(self) -> int | None:
        while True:
            known = self._known()
            facts = known.facts
            if known.is_gone or (facts is not None and facts.has_ended):
                await self._until_log_is_complete()
                if self._loss is None:
                    self._loss = loss_of(str(self._pod), facts if facts is not None and facts.has_ended else None)
                return None if facts is None else facts.exit_code
            if self._waits_too_long(known):
                return None
            await asyncio.sleep(_POLL_S)

    async def end(self, grace_s: float) -> None:
        """End the pod within a time limit.

        If the API does not answer, the pod is deleted later, and its claim guards the job.
        """
        deadline = self._clock.monotonic() + grace_s + _SILENCE_S
        while not await asyncio.wrap_future(in_daemon_thread(lambda: self._delete(grace_s), "delete-pod")):
            if self._clock.monotonic() > deadline:
                logger.warning("pod %s cannot be deleted now and is deleted later", self._pod)
                self._observer.delete_later(self._pod)
                self.close()
                return
            await asyncio.sleep(_POLL_S)
        while not self._is_over() and self._clock.monotonic() < deadline:  # noqa: ASYNC110  (a pod sets no event)
            await asyncio.sleep(_POLL_S)
        if not self._is_over():
            logger.warning("pod %s was deleted %g s ago and is still there", self._pod, grace_s + _SILENCE_S)
            self._observer.delete_later(self._pod)
        await self._until_log_is_complete()
        self.close()

    def last_log_lines(self) -> str:
        return tail(self._work / LOG_NAME)

    def close(self) -> None:
        """Stop following the pod and leave it as it is."""
        self._last_known = self._known()
        self._observer.leave(self._pod)
        self._log.close()

    def _known(self) -> Known:
        return self._last_known or self._observer.known(self._pod)

    def _is_over(self) -> bool:
        known = self._known()
        return known.is_gone or (known.facts is not None and known.facts.has_ended)

    def _waits_too_long(self, known: Known) -> bool:
        """Return whether the start took too long, measured between answers: without them the pod may have started."""
        facts, first, last = known.facts, known.first_seen_s, known.seen_s
        if facts is None or facts.has_started or first is None or last is None:
            return False
        if not facts.is_hopeless and last - first <= self._start_limit_s:
            return False
        self._loss = not_started(str(self._pod), facts, self._start_limit_s)
        return True

    async def _until_log_is_complete(self) -> None:
        deadline = self._clock.monotonic() + _LAST_LINES_S
        while not self._log.is_complete.is_set() and self._clock.monotonic() < deadline:  # noqa: ASYNC110  (a thread's)
            await asyncio.sleep(_POLL_S)

    def _delete(self, grace_s: float) -> bool:
        """Return whether the API has accepted the deletion, or there is nothing to delete."""
        known = self._known()
        uid = self._pod.uid or (known.facts.uid if known.facts is not None else "")
        if not uid:
            return known.is_gone
        try:
            self._api.delete_pod(self._pod.namespace, self._pod.name, uid, grace_s)
        except ApiUnreachable as error:
            logger.info("pod %s cannot be deleted now: %s", self._pod, error)
            return False
        except ApiRefused as error:
            if not (error.is_not_found or error.is_conflict):
                logger.warning("pod %s cannot be deleted: %s", self._pod, error)
                return False
        return True
