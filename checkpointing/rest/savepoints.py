"""`/jobs/:jobid/savepoints`, `/jobs/:jobid/stop`, `/savepoint-disposal`, `/savepoints/validate`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from checkpointing.coordinator.stats_json import external_path
from checkpointing.jobs.batch_numbers import BatchCounterUnreadable
from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.jobs.job_master import JobMaster
from checkpointing.jobs.operations import UnknownOperation
from checkpointing.jobs.restore import replaced_batches
from checkpointing.jobs.services import JobServices
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.rest.errors import RestError, bad_request
from checkpointing.rest.operation_json import operation_json
from checkpointing.rest.requests import choice_field, flag_field, id_field, json_body, path_id, text_field
from checkpointing.rest.rows_written_again import sinks_json
from checkpointing.storage.checkpoint_storage import dispose_savepoint
from checkpointing.storage.claims import check_unclaimed
from checkpointing.storage.errors import MetadataMissing, StorageError, StorageSilent, StorageUnreachable
from checkpointing.storage.locations import is_local
from checkpointing.storage.reachability import require_storage
from checkpointing.storage.roots import SavepointRoots
from checkpointing.storage.verification import verify

OPERATION = "savepoint"
DISPOSAL = "savepoint-disposal"
_FORMATS = ("CANONICAL", "NATIVE")
# Snapshots up to this size are hashed within a request, local and remote. A larger one is checked when the job starts.
_MOST_HASHED_BYTES = 1 << 30
_MOST_HASHED_REMOTE_BYTES = 64 << 20


class SavepointUnusable(Exception):
    """This job cannot start from the savepoint. The text says why."""


async def usable_savepoint(
    services: JobServices, path: str, entry_class: str | None, *, allow_other_program: bool
) -> CompletedCheckpoint:
    """Return the savepoint at `path` after checking every file. Raise SavepointUnusable if it cannot be used.

    Answer 503 if its storage cannot be reached, which says nothing about the savepoint.
    """
    roots = services.settings.restore_roots
    try:
        checkpoint = await services.storage_io_at(path).read(path, lambda: _verified(roots.resolve(path)))
    except StorageUnreachable as error:
        raise RestError(503, f"savepointPath: {error}") from error
    except OSError as error:
        raise SavepointUnusable(str(error)) from error
    if entry_class is not None and not allow_other_program and not _is_same(entry_class, checkpoint.entry_class):
        raise SavepointUnusable(
            f"{path} was taken by another program, {checkpoint.entry_class} (job {checkpoint.job_name!r}), "
            f"not by {entry_class}"
        )
    if not allow_other_program and (replaced := await services.io.run(lambda: _replaced(services, checkpoint))):
        raise SavepointUnusable(replaced)
    return checkpoint


def _replaced(services: JobServices, checkpoint: CompletedCheckpoint) -> str | None:
    """Return a text about a query that may have replaced batches of the snapshot since it was taken, or None."""
    repeating = [operator.query for operator in checkpoint.operators if operator.repeats_numbers]
    if not repeating:
        return None
    try:
        since = services.batch_number_counters.restored_since(
            checkpoint.family, checkpoint.batch_numbers, checkpoint.batches
        )
    except (BatchCounterUnreadable, OSError) as error:
        return str(error)
    return next((replaced_batches(checkpoint, query, since[query]) for query in repeating if query in since), None)


async def resolve_in_roots(services: JobServices, roots: SavepointRoots, path: str, field: str) -> str:
    """Return `path` confined to `roots`.

    The answer 400 names the `field`, and 503 means that the storage does not answer.
    """
    try:
        return await services.storage_io_at(path).read(path, lambda: roots.resolve(path))
    except StorageSilent as error:
        raise RestError(503, f"{field}: {error}") from error
    except StorageError as error:
        raise bad_request(f"{field}: {error}") from error


def _verified(directory: str) -> CompletedCheckpoint:
    checkpoint = verify(directory)
    most = _MOST_HASHED_BYTES if is_local(directory) else _MOST_HASHED_REMOTE_BYTES
    return verify(directory, deep=True) if checkpoint.state_size <= most else checkpoint


def _is_same(entry_class: str, other: str) -> bool:
    """Return whether both entry classes name the same program, as `wordcount:main` and `wordcount.py:main` do.

    The program of a savepoint of a watched query is not known.
    """
    return other == "" or entry_class.replace(".py:", ":") == other.replace(".py:", ":")


class SavepointHandlers:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @property
    def _services(self) -> JobServices:
        return self._dispatcher.services

    async def trigger(self, request: Request) -> JSONResponse:
        job_id = path_id(request, "jobid")
        body = await json_body(request)
        choice_field(body, "formatType", _FORMATS, "CANONICAL")
        target = await self._target(body, "target-directory")
        cancel_job = flag_field(body, "cancel-job")
        trigger_id = id_field(body, "triggerId")

        async def begin(job: JobMaster) -> dict[str, Any]:
            directory = target or self._default_directory(job)
            return {"location": external_path(await job.requests.trigger_savepoint(directory, cancel_job=cancel_job))}

        self._dispatcher.trigger(job_id, trigger_id, OPERATION, begin)
        return JSONResponse({"request-id": trigger_id}, 202)

    async def stop(self, request: Request) -> JSONResponse:
        """Stop the job with a savepoint. `targetDirectory` is camel case here, as in Flink."""
        job_id = path_id(request, "jobid")
        body = await json_body(request)
        choice_field(body, "formatType", _FORMATS, "CANONICAL")
        target = await self._target(body, "targetDirectory")
        drain = flag_field(body, "drain")
        trigger_id = id_field(body, "triggerId")

        async def begin(job: JobMaster) -> dict[str, Any]:
            directory = target or self._default_directory(job)
            return {"location": external_path(await job.requests.stop_with_savepoint(directory, drain=drain))}

        self._dispatcher.trigger(job_id, trigger_id, OPERATION, begin)
        return JSONResponse({"request-id": trigger_id}, 202)

    async def status(self, request: Request) -> JSONResponse:
        """Return the status of a savepoint or a stop."""
        job_id, trigger_id = path_id(request, "jobid"), path_id(request, "triggerid")
        try:
            outcome = self._dispatcher.outcome(job_id, trigger_id, OPERATION)
        except UnknownOperation:
            text = f"There is no savepoint operation with triggerId={trigger_id} for job {job_id}."
            raise RestError(404, text) from None
        return JSONResponse(operation_json(outcome))

    async def dispose(self, request: Request) -> JSONResponse:
        """Dispose of a savepoint.

        Refuse a path outside the roots at once; other errors are in the operation's result.
        """
        self._dispatcher.require_leading()
        body = await json_body(request)
        path = text_field(body, "savepoint-path")
        if path is None:
            raise bad_request("savepoint-path: the path of the savepoint is expected")
        await self._resolve(path, "savepoint-path")
        trigger_id = id_field(body, "triggerId")

        async def begin() -> dict[str, Any]:
            roots = self._services.settings.savepoint_roots
            await self._services.storage_io_at(path).run(lambda: _dispose(path, roots))
            return {}

        self._dispatcher.operations.start((DISPOSAL, trigger_id), begin)
        return JSONResponse({"request-id": trigger_id})

    async def disposal_status(self, request: Request) -> JSONResponse:
        self._dispatcher.require_leading()
        trigger_id = path_id(request, "triggerid")
        try:
            outcome = self._dispatcher.operations.outcome((DISPOSAL, trigger_id))
        except UnknownOperation:
            raise RestError(404, f"There is no disposal operation with triggerId={trigger_id}.") from None
        return JSONResponse(operation_json(outcome))

    async def validate(self, request: Request) -> JSONResponse:
        """Return whether a job could start from this path, before anything is stopped. Flink has no such address."""
        self._dispatcher.require_leading()
        body = await json_body(request)
        path = text_field(body, "savepointPath")
        if path is None:
            raise bad_request("savepointPath: the path of a savepoint or checkpoint is expected")
        try:
            found = await usable_savepoint(
                self._services, path, text_field(body, "entryClass"), allow_other_program=False
            )
        except SavepointUnusable as error:
            missing = isinstance(error.__cause__, MetadataMissing) and await self._is_storage_available(path)
            return JSONResponse(_verdict(str(error), None, missing=missing))
        return JSONResponse(_verdict(None, found))

    async def _is_storage_available(self, path: str) -> bool:
        """Return whether the storage of `path` is available.

        If it is not mounted, the snapshot may only look missing (decision 123).
        """
        roots = self._services.settings.restore_roots
        try:
            await self._services.storage_io_at(path).read(path, lambda: require_storage(roots.resolve(path)))
        except OSError:
            return False
        return True

    async def _target(self, body: Any, name: str) -> str | None:
        target = text_field(body, name)
        return None if target is None else await self._resolve(target, name)

    async def _resolve(self, path: str, name: str) -> str:
        """Return the real directory of `path`. Refuse it if it is outside the savepoint roots."""
        roots = self._services.settings.savepoint_roots
        return await resolve_in_roots(self._services, roots, path, name)

    def _default_directory(self, job: JobMaster) -> str:
        return job.record.config.savepoint_directory or self._services.settings.savepoint_directory


def _dispose(path: str, roots: SavepointRoots) -> None:
    """Dispose of a savepoint. Refuse one that a job has claimed, because that job removes it."""
    check_unclaimed(roots.resolve(path))
    dispose_savepoint(path, roots)


def _verdict(reason: str | None, found: CompletedCheckpoint | None, *, missing: bool = False) -> dict[str, Any]:
    """Return the answer. `missing`: there is no snapshot at the path, so none is damaged."""
    return {
        "valid": found is not None,
        "missing": missing,
        "reason": reason,
        "checkpointId": found.checkpoint_id if found else None,
        "jobName": found.job_name if found else None,
        "entryClass": found.entry_class if found else None,
        "stateSize": found.state_size if found else None,
        "completedTimestamp": found.completion_timestamp if found else None,
        "queries": sinks_json(found.operators) if found else None,
    }
