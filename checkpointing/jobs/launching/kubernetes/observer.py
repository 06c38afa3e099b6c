"""Lists the pods of one cluster of job managers every few seconds, for all drivers at once, on its own thread.

What is known about a pod changes only by an answer of the API. While the API does not answer, nothing changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from checkpointing.clock import Clock
from checkpointing.jobs.launching.kubernetes.api import ApiRefused, ApiUnreachable, KubernetesApi
from checkpointing.jobs.launching.kubernetes.conditions import PodFacts, facts_of

logger = logging.getLogger(__name__)

LIST_INTERVAL_S = 2.0
_KILL_S = 1.0


@dataclass(frozen=True)
class PodId:
    """`uid` distinguishes pods that had the same name; "" until the API has reported it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Known:
    """The knowledge about a pod. `facts` are the last ones, also for a pod that `is_gone`; None before the first.

    `seen_s` is the time of the API's last report about the pod, `first_seen_s` that of its first.
    """

    facts: PodFacts | None = None
    is_gone: bool = False
    first_seen_s: float | None = None
    seen_s: float | None = None


@dataclass
class _FollowedPod:
    since_s: float
    known: Known = field(default_factory=Known)


class PodObserver:
    """Observes pods while one is followed or must be deleted, and until `close`. Usable on any thread."""

    def __init__(
        self, api: KubernetesApi, selector: Mapping[str, str], clock: Clock, interval_s: float = LIST_INTERVAL_S
    ) -> None:
        self._api = api
        self._selector = selector
        self._clock = clock
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._followed: dict[PodId, _FollowedPod] = {}
        self._unwanted: set[PodId] = set()
        self._thread: threading.Thread | None = None
        self._problem = ""

    def follow(self, pod: PodId, facts: PodFacts | None = None) -> None:
        """Follow a pod. `facts`, if given, come from an answer that has just arrived."""
        now = self._clock.monotonic()
        known = Known() if facts is None else Known(facts, first_seen_s=now, seen_s=now)
        with self._lock:
            self._followed.setdefault(pod, _FollowedPod(now, known))
        self._start_thread()

    def leave(self, pod: PodId) -> None:
        with self._lock:
            self._followed.pop(pod, None)

    def known(self, pod: PodId) -> Known:
        with self._lock:
            followed = self._followed.get(pod)
            return Known() if followed is None else followed.known

    def delete_later(self, pod: PodId) -> None:
        """Delete a pod that could not be deleted now, once the API answers again."""
        with self._lock:
            self._unwanted.add(pod)
        self._start_thread()

    def close(self) -> None:
        with self._lock:
            self._followed.clear()
            self._unwanted.clear()
        self._wake.set()

    def _start_thread(self) -> None:
        self._wake.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._has_work():
            self._wake.clear()
            self._update()
            self._wake.wait(self._interval_s)

    def _has_work(self) -> bool:
        with self._lock:
            if not self._followed and not self._unwanted:
                self._thread = None
            return self._thread is not None

    def _update(self) -> None:
        try:
            for pod in self._copy_of_unwanted():
                self._delete(pod)
            for namespace in {pod.namespace for pod in self._copy_of_followed()}:
                began_s = self._clock.monotonic()
                pods = [facts_by_name(each) for each in self._api.pods(namespace, self._selector)]
                self._store_facts(namespace, dict(pods), began_s)
        except (ApiUnreachable, ApiRefused) as error:
            if self._problem != type(error).__name__:
                logger.warning("the pods of drivers cannot be looked at now, and count as they were: %s", error)
            self._problem = type(error).__name__
        else:
            self._problem = ""

    def _delete(self, pod: PodId) -> None:
        try:
            uid = pod.uid or self._uid(pod)
            if uid is not None:
                self._api.delete_pod(pod.namespace, pod.name, uid, _KILL_S)
        except ApiRefused as error:
            if not (error.is_not_found or error.is_conflict):
                raise
        with self._lock:
            self._unwanted.discard(pod)

    def _uid(self, pod: PodId) -> str | None:
        """Return the pod's UID, or None for a pod that does not belong to this cluster of job managers."""
        metadata = self._api.pod(pod.namespace, pod.name)["metadata"]
        have = metadata.get("labels") or {}
        return str(metadata["uid"]) if self._selector.items() <= have.items() else None

    def _copy_of_unwanted(self) -> list[PodId]:
        with self._lock:
            return list(self._unwanted)

    def _copy_of_followed(self) -> list[PodId]:
        with self._lock:
            return list(self._followed)

    def _store_facts(self, namespace: str, facts: Mapping[str, PodFacts], began_s: float) -> None:
        """Store the listed facts. Skip pods followed only after the list began: the list may be older than they are."""
        with self._lock:
            for pod, followed in self._followed.items():
                if pod.namespace != namespace or began_s < followed.since_s:
                    continue
                found, last = facts.get(pod.name), followed.known.facts
                uid = pod.uid or (last.uid if last is not None else "")
                if found is None or uid not in ("", found.uid):
                    followed.known = replace(followed.known, is_gone=True, seen_s=began_s)
                else:
                    first = followed.known.first_seen_s
                    followed.known = Known(found, first_seen_s=began_s if first is None else first, seen_s=began_s)


def facts_by_name(pod: Mapping[str, object]) -> tuple[str, PodFacts]:
    metadata = pod.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return str(name), facts_of(pod)
