"""`/savepoints/import`: makes a savepoint from Spark's own checkpoint locations, and validates them before.

Flink has no such address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from checkpointing.coordinator.stats_json import external_path
from checkpointing.jobs.continued_queries import AlreadyContinued
from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.jobs.operations import UnknownOperation
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.rest.errors import RestError, bad_request, refusal_json
from checkpointing.rest.operation_json import operation_json
from checkpointing.rest.requests import id_field, json_body, path_id, text_field
from checkpointing.rest.savepoints import resolve_in_roots
from checkpointing.spark.imported import import_savepoint
from checkpointing.spark.spark_location import ImportRefused, SparkLocation, find
from checkpointing.storage.checkpoint_storage import FileCheckpointStorage
from checkpointing.storage.errors import StorageError, StorageUnreachable
from checkpointing.storage.locations import canonical

OPERATION = "savepoint-import"
_FORM = "checkpoints: an object is expected: the checkpoint location of each query, by the query's name"


class ImportHandlers:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def begin(self, request: Request) -> JSONResponse:
        """Begin an import. `checkpoints` has locations by query name; a program with one query may use the name "".

        `entryClass` is the program that the savepoint is for. Large state takes time; `status` reports the progress.
        """
        self._dispatcher.require_all_recovered()
        body = await json_body(request)
        locations = _locations(body)
        entry_class = text_field(body, "entryClass")
        if entry_class is None:
            raise bad_request("entryClass: the program that the savepoint is for is expected")
        services = self._dispatcher.services
        target = text_field(body, "targetDirectory") or services.settings.savepoint_directory
        directory = await resolve_in_roots(services, services.settings.savepoint_roots, target, "targetDirectory")
        trigger_id = id_field(body, "triggerId")

        def storage_of(job_id: str) -> FileCheckpointStorage:
            return services.savepoint_storage(job_id, lambda: self._dispatcher.leading)

        def imported() -> CompletedCheckpoint:
            with services.temporaries.new() as scratch:
                return import_savepoint(locations, storage_of, directory, entry_class, services.clock, scratch.path)

        async def copy() -> dict[str, Any]:
            io = services.storage_io_at(next(iter(locations.values())))
            self._dispatcher.check_import(await io.run(partial(_by_query_id, locations.values())))
            made = await io.run(imported)
            return {"location": external_path(made.location), "batches": made.batches}

        self._dispatcher.operations.start((OPERATION, trigger_id), copy)
        return JSONResponse({"request-id": trigger_id}, 202)

    async def validate(self, request: Request) -> JSONResponse:
        """Describe each location of `checkpoints`, or say why it cannot be imported. Nothing is copied.

        A location that is `valid` has the newest committed batch, its operators and its formats. Any other has a
        `reason`. The answer 503 means that a storage does not answer, which says nothing about the location.
        """
        self._dispatcher.require_leading()
        locations = _locations(await json_body(request))
        services = self._dispatcher.services
        found = []
        for query, location in locations.items():
            try:
                answer = await services.storage_io_at(location).read(location, partial(_validate, location))
            except StorageUnreachable as error:
                raise RestError(503, f"checkpoints: {error}") from error
            found.append(
                {"query": query, "location": external_path(location), **self._unless_continued(location, answer)}
            )
        return JSONResponse({"checkpoints": found})

    def _unless_continued(self, location: str, answer: dict[str, Any]) -> dict[str, Any]:
        """Return `answer`, or a refusal if a job already continues the query of the location."""
        try:
            self._dispatcher.check_import({answer["queryId"]: location} if answer["valid"] else {})
        except AlreadyContinued as error:
            return _unusable(error)
        return answer

    async def status(self, request: Request) -> JSONResponse:
        self._dispatcher.require_leading()
        trigger_id = path_id(request, "triggerid")
        try:
            outcome = self._dispatcher.operations.outcome((OPERATION, trigger_id))
        except UnknownOperation:
            raise RestError(404, f"There is no import with triggerId={trigger_id}.") from None
        return JSONResponse(operation_json(outcome))


def _by_query_id(locations: Iterable[str]) -> dict[str, str]:
    """Return each location by Spark's ID of its query. Raise ImportRefused or OSError."""
    return {found.query_id: found.location for found in map(find, locations)}


def _validate(location: str) -> dict[str, Any]:
    try:
        found = find(location)
        return {"valid": True, "reason": "", **_found_json(found)}
    except StorageUnreachable:
        raise
    except (ImportRefused, OSError) as error:
        return _unusable(error)


def _unusable(error: Exception) -> dict[str, Any]:
    return {"valid": False, "reason": str(error), **refusal_json(error)}


def _found_json(found: SparkLocation) -> dict[str, Any]:
    return {
        "queryId": found.query_id,
        "batch": found.batch,
        "batchTimestamp": found.batch_timestamp_ms,
        "begunBatch": found.uncommitted_batch,
        "sources": found.num_sources,
        "operators": [{"name": each.name, "partitions": each.partitions} for each in found.operators()],
        "stateStore": found.state_store,
        "formats": {log: found.log_format(log) for log in ("offsets", "commits")},
        "files": len(found.selected),
        "size": sum(file.size for file in found.selected),
    }


def _locations(body: Mapping[str, Any]) -> dict[str, str]:
    given = body.get("checkpoints")
    if not isinstance(given, dict) or not given or not all(isinstance(each, str) for each in given.values()):
        raise bad_request(_FORM)
    if "" in given and len(given) > 1:
        raise bad_request("checkpoints: one of several locations has no query; name the query of each location")
    try:
        locations = {query: canonical(location) for query, location in given.items()}
    except StorageError as error:
        raise bad_request(f"checkpoints: {error}") from error
    if len(set(locations.values())) < len(locations):
        raise bad_request("checkpoints: two queries have the same location; give each query its own location")
    return locations
