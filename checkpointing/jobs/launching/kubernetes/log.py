"""The log of a driver's pod, copied into the attempt's directory, because it is deleted with the pod.

`driver.log` is then the same as for a process of this machine. `driver.log.since` holds the time stamp of the last
copied line, so that the next job manager continues there.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.durable_files import append_privately
from checkpointing.jobs.attempts import LOG_NAME
from checkpointing.jobs.launching.kubernetes.api import ApiRefused, ApiUnreachable, KubernetesApi
from checkpointing.jobs.launching.kubernetes.conditions import CONTAINER
from checkpointing.jobs.launching.kubernetes.observer import Known, PodId
from checkpointing.jobs.launching.log_limit import LogLimit
from checkpointing.jobs.launching.processes import write_private

logger = logging.getLogger(__name__)

SINCE_NAME = f"{LOG_NAME}.since"
_PAUSE_S = 1.0
_UNTIL_IT_STARTS_S = 0.2
_STAMP = re.compile(rb"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<fraction>\.\d+)?(Z|[+-]\d\d:\d\d) ")


class PodLog:
    """Copies the log on a separate thread until the pod's container has ended. `known` returns facts about the pod."""

    def __init__(self, api: KubernetesApi, pod: PodId, work: Path, known: Callable[[], Known], clock: Clock) -> None:
        self._api = api
        self._pod = pod
        self._log = work / LOG_NAME
        self._since_file = work / SINCE_NAME
        self._known = known
        self._limit = LogLimit(self._log, clock)
        self._closing = threading.Event()
        self._last = ""
        self.is_complete = threading.Event()
        threading.Thread(target=self._run, name=f"log of {pod.name}", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    def _run(self) -> None:
        try:
            self._last = self._since_file.read_text().strip() if self._since_file.exists() else ""
            while not self._closing.is_set() and not self._copied():
                facts = self._known().facts
                self._closing.wait(_PAUSE_S if facts is not None and facts.has_started else _UNTIL_IT_STARTS_S)
        except OSError as error:
            logger.warning("the log of pod %s cannot be kept: %s", self._pod, error)
        finally:
            self.is_complete.set()

    def _copied(self) -> bool:
        """Copy new lines. Return whether no more can follow."""
        known = self._known()
        facts = known.facts
        if facts is None or not facts.has_started:
            return known.is_gone or (facts is not None and facts.has_ended)
        try:
            self._copy()
        except ApiRefused as error:
            if not error.is_not_found:
                logger.warning("the log of pod %s is refused: %s", self._pod, error)
            return known.is_gone or facts.has_ended
        except ApiUnreachable as error:
            logger.debug("the log of pod %s cannot be read now: %s", self._pod, error)
            return known.is_gone
        return known.is_gone or facts.has_ended

    def _copy(self) -> None:
        since = f"{self._last[:19]}Z" if self._last else None
        for line in self._api.follow_log(self._pod.namespace, self._pod.name, CONTAINER, since):
            if self._closing.is_set():
                return
            self._append_line(line)

    def _append_line(self, line: bytes) -> None:
        match = _STAMP.match(line)
        if match is None:
            self._append(line)
            return
        stamp = match["stamp"].decode() + (match["fraction"] or b".").decode().ljust(10, "0")
        if stamp <= self._last:  # the API returned whole seconds, so this line is known
            return
        self._append(line[match.end() :])
        self._last = stamp
        write_private(self._since_file, stamp)

    def _append(self, line: bytes) -> None:
        with append_privately(self._log) as log:
            log.write(line)
        self._limit.enforce()
