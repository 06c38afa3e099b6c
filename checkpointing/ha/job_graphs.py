"""The graphs of submitted jobs, so that the next leader can start them again (Flink's JobGraphStore)."""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from checkpointing.durable_files import write_durably
from checkpointing.ha.errors import HighAvailabilityError, JobGraphUnreadable, NodeExists, NodeMissing
from checkpointing.ha.state_handles import StateHandleStore
from checkpointing.model.job_environment import has_sealed
from checkpointing.model.job_graph import JobGraph

log = logging.getLogger(__name__)

_VERSION = 1
_VERSION_WITH_SEALED = 2  # an older job manager, which cannot decrypt the secrets, must not start the job


class JobGraphStore(Protocol):
    """Stores job graphs. All methods block; only the leader uses them."""

    def put(self, graph: JobGraph) -> None:
        """Store `graph` and replace one with its ID. PossibleInconsistentState: it may or may not have been stored."""
        ...

    def recover(self, job_id: str) -> JobGraph | None:
        """Return the graph, or None if there is no such job. Raise JobGraphUnreadable if it cannot be read."""
        ...

    def job_ids(self) -> Sequence[str]: ...

    def remove(self, job_id: str) -> None:
        """Remove a job that is over for all job managers. May be repeated."""
        ...

    def release(self, job_id: str) -> None:
        """Release the job for the next job manager; its graph stays. Ending the session has the same effect."""
        ...


class StandaloneJobGraphStore:
    """Job graphs in memory. Jobs end with their job manager, as in Flink's mode NONE."""

    def __init__(self) -> None:
        self._graphs: dict[str, JobGraph] = {}

    def put(self, graph: JobGraph) -> None:
        self._graphs[graph.job_id] = graph

    def recover(self, job_id: str) -> JobGraph | None:
        return self._graphs.get(job_id)

    def job_ids(self) -> Sequence[str]:
        return sorted(self._graphs)

    def remove(self, job_id: str) -> None:
        self._graphs.pop(job_id, None)

    def release(self, job_id: str) -> None:
        """Do nothing, because nothing is locked."""


class HandleJobGraphStore:
    """Stores each graph as a file in `directory`, which all job managers share, and its path in a handle store.

    A file is written before its handle and removed after it, so a handle always has its file.
    """

    def __init__(self, handles: StateHandleStore, directory: Path) -> None:
        self._handles = handles
        self._directory = directory

    def put(self, graph: JobGraph) -> None:
        old = self._stored_file(graph.job_id)
        file = self._directory / f"{graph.job_id}-{uuid.uuid4().hex}.json"
        write_durably(file, json.dumps({"version": _version(graph), "graph": graph.to_json()}))
        try:
            self._store_handle(graph.job_id, file, exists=old is not None)
        except HighAvailabilityError:  # the node was certainly not stored, unlike with PossibleInconsistentState
            file.unlink(missing_ok=True)
            raise
        if old is not None:
            _remove_file(old)

    def recover(self, job_id: str) -> JobGraph | None:
        file = self._stored_file(job_id)
        if file is None:
            return None
        try:
            return _decoded(job_id, file.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._handles.release(job_id)
            raise JobGraphUnreadable(f"the graph of job {job_id} in {file} cannot be read: {error}") from error

    def job_ids(self) -> Sequence[str]:
        return [name for name in self._handles.names() if self._handles.exists(name)]

    def remove(self, job_id: str) -> None:
        file = self._stored_file(job_id)
        if self._handles.release_and_try_remove(job_id) and file is not None:
            _remove_file(file)

    def release(self, job_id: str) -> None:
        self._handles.release(job_id)

    def _store_handle(self, job_id: str, file: Path, *, exists: bool) -> None:
        handle = json.dumps({"version": _VERSION, "location": str(file)}).encode()
        if exists:
            self._handles.replace(job_id, handle)
            return
        try:
            self._handles.add_and_lock(job_id, handle)
        except NodeExists:
            self._handles.get_and_lock(job_id)
            self._handles.replace(job_id, handle)

    def _stored_file(self, job_id: str) -> Path | None:
        with contextlib.suppress(NodeMissing):
            handle = self._handles.get_and_lock(job_id)
            try:
                return Path(json.loads(handle)["location"])
            except (ValueError, KeyError, TypeError) as error:
                raise JobGraphUnreadable(f"the handle of job {job_id} is damaged: {handle[:80]!r}") from error
        return None


def _version(graph: JobGraph) -> int:
    return _VERSION_WITH_SEALED if has_sealed(graph.configuration) else _VERSION


def _remove_file(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError:
        log.warning("the job graph %s is no longer used and could not be deleted", file, exc_info=True)


def _decoded(job_id: str, text: str) -> JobGraph:
    """Return the stored graph. Raise KeyError, TypeError or ValueError on what `put` did not write for this job."""
    content = json.loads(text)
    if content["version"] not in (_VERSION, _VERSION_WITH_SEALED):
        raise ValueError(f"version {content['version']!r} of the job graph's format is not supported")
    graph = JobGraph.from_json(content["graph"])
    if graph.job_id != job_id:
        raise ValueError(f"the graph belongs to another job, {graph.job_id}")
    return graph
