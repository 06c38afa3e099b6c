"""`/jars`: uploading programs and running them."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from checkpointing.ha.services import HighAvailabilityMode
from checkpointing.jobs.continued_queries import AlreadyContinued
from checkpointing.jobs.dispatcher import Dispatcher, JobExists, SubmissionFailed
from checkpointing.jobs.parallelism import MAX_PARALLELISM
from checkpointing.jobs.programs import (
    InvalidProgram,
    Program,
    ProgramNotFound,
    check_program,
    entry_functions,
    split_entry_class,
)
from checkpointing.jobs.python_environments.source import EnvironmentSource
from checkpointing.jobs.restore import CLAIM_MODES, StateRecovery, claims_savepoint
from checkpointing.jobs.services import JobServices
from checkpointing.masking import HIDDEN
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.configuration import CheckpointConfiguration, CheckpointStorageKind, InvalidConfiguration
from checkpointing.model.job_environment import JobEnvironment
from checkpointing.model.job_graph import JobGraph
from checkpointing.rest.errors import RestError, bad_request, refused
from checkpointing.rest.requests import (
    choice_field,
    flag_field,
    id_field,
    json_body,
    limited_body,
    text_field,
    uploaded_file,
    whole_number,
)
from checkpointing.rest.savepoints import SavepointUnusable, resolve_in_roots, usable_savepoint
from checkpointing.storage.claims import JobClaims

JOB_NAME_KEY = "pipeline.name"
# The names of Flink's query parameters and of the same fields in the body. Flink's UI sends both, and the body counts.
_QUERY_FIELDS = {
    "entry-class": "entryClass",
    "parallelism": "parallelism",
    "program-args": "programArgs",
    "savepointPath": "savepointPath",
    "allowNonRestoredState": "allowNonRestoredState",
}
_ARGUMENTS = {"programArgs", "programArgsList"}


class CannotClaim(Exception):
    """The savepoint can be restored, but not claimed. The text says why."""


class JarHandlers:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @property
    def _services(self) -> JobServices:
        return self._dispatcher.services

    async def upload(self, request: Request) -> JSONResponse:
        self._dispatcher.require_leading()
        limit = self._services.settings.max_upload_bytes
        too_large = f"The upload is larger than {limit} bytes (WAYMARK_MAX_UPLOAD_BYTES)."
        body = await limited_body(request, limit, too_large)
        content_type = request.headers.get("content-type", "")
        try:
            file = await asyncio.to_thread(uploaded_file, content_type, body, "jarfile")
            program = await self._services.io.run(lambda: self._services.programs.store(file.name, file.content))
        except InvalidProgram as error:
            raise bad_request(str(error)) from error
        return JSONResponse({"filename": str(program.path), "status": "success"})

    async def list(self, request: Request) -> JSONResponse:
        self._dispatcher.require_leading()

        def described() -> list[dict[str, Any]]:
            return [_described(program) for program in self._services.programs.list()]

        return JSONResponse({"address": self._services.address, "files": await self._services.io.run(described)})

    async def content(self, request: Request) -> Response:
        """Return the file as it was uploaded. Flink has no such answer."""
        self._dispatcher.require_leading()
        jar_id = str(request.path_params["jarid"])
        try:
            file = await self._services.io.run(lambda: self._services.programs.get(jar_id).path.read_bytes())
        except (ProgramNotFound, FileNotFoundError) as error:
            raise RestError(404, f"Jar file {jar_id} does not exist") from error
        return Response(file, media_type="application/octet-stream")

    async def delete(self, request: Request) -> JSONResponse:
        self._dispatcher.require_leading()
        jar_id = str(request.path_params["jarid"])
        try:
            await self._services.io.run(lambda: self._services.programs.delete(jar_id))
        except ProgramNotFound as error:
            raise RestError(
                404, f"File {jar_id} does not exist in {self._services.settings.state_directory}."
            ) from error
        return JSONResponse({})

    async def run(self, request: Request) -> JSONResponse:
        """Start a job. Check everything before: answer 400 with a reason, or 409 for a job ID that is in use."""
        self._dispatcher.require_leading()
        body = _with_query(request, await json_body(request))
        program = await self._program(str(request.path_params["jarid"]))
        graph = self._graph(program, body)
        await self._check_directories(graph.configuration)
        try:
            await self._services.io.run(lambda: check_program(program, graph.entry_class))
            await self._services.io.run(lambda: self._services.launcher.check_files(graph))
            imports: Mapping[str, str] = {}
            if graph.savepoint_path is not None:
                found = await self._savepoint(graph)
                graph = replace(graph, savepoint_path=found.location, imported_queries=found.imported_queries)
                imports = found.imports
            async with self._claimed(graph):
                await self._dispatcher.submit(graph, program, imports)
        except (SavepointUnusable, CannotClaim, AlreadyContinued) as error:
            raise refused("savepointPath", error) from error
        except (InvalidProgram, InvalidConfiguration) as error:
            raise bad_request(str(error)) from error
        except JobExists as error:
            raise RestError(409, str(error)) from error
        except SubmissionFailed as error:
            raise RestError(500, str(error)) from error
        return JSONResponse({"jobid": graph.job_id})

    async def _savepoint(self, graph: JobGraph) -> CompletedCheckpoint:
        """Return the savepoint with its real directory, because a link could point elsewhere later."""
        path, other_program = graph.savepoint_path or "", graph.allow_non_restored_state
        found = await usable_savepoint(self._services, path, graph.entry_class, allow_other_program=other_program)
        if claims_savepoint(graph):
            self._check_owner_ended(found)
        return found

    def _check_owner_ended(self, checkpoint: CompletedCheckpoint) -> None:
        """Raise CannotClaim for a checkpoint of a running job, which removes it when it is subsumed.

        A savepoint is allowed.
        """
        owner = next((job for job in self._dispatcher.jobs if job.graph.job_id == checkpoint.job_id), None)
        if owner is not None and not owner.status.terminal and not checkpoint.properties.is_savepoint:
            raise CannotClaim(
                f"{checkpoint.location} is a checkpoint of job {checkpoint.job_id}, which is {owner.status.value} and "
                "still uses it; claim it when that job has ended, or claim a savepoint"
            )

    @asynccontextmanager
    async def _claimed(self, graph: JobGraph) -> AsyncIterator[None]:
        """In mode CLAIM, claim the savepoint before the job starts. Release it if the job does not start."""
        if graph.savepoint_path is None or not claims_savepoint(graph):
            yield
            return
        path = graph.savepoint_path
        claims = self._services.claims(graph, CheckpointConfiguration.parse(graph.configuration))
        is_new = await self._claim(claims, path)
        try:
            yield
        except Exception:
            if is_new:
                await self._services.storage_io_at(path).run(lambda: claims.give_up(path))
            raise

    async def _claim(self, claims: JobClaims, path: str) -> bool:
        """Claim the savepoint. Return whether the claim is new."""
        io = self._services.storage_io_at(path)
        try:
            return await io.run(lambda: claims.is_outside_job_directory(path) and claims.claim(path))
        except OSError as error:
            raise CannotClaim(str(error)) from error

    async def _program(self, jar_id: str) -> Program:
        try:
            now_ms = self._services.clock.now_ms()
            return await self._services.io.run(lambda: self._services.programs.use(jar_id, now_ms))
        except ProgramNotFound as error:
            raise bad_request(str(error)) from error

    def _graph(self, program: Program, body: Mapping[str, Any]) -> JobGraph:
        entry_class = text_field(body, "entryClass")
        if entry_class is None:
            raise bad_request("entryClass: module:function or file.py:function is expected, or file.py for a script")
        configuration = _configuration(body)
        try:
            module, function = split_entry_class(entry_class)
            recovery = StateRecovery.parse(configuration)
            self._check_storage(configuration)
            JobEnvironment.parse(configuration)
            EnvironmentSource.parse(configuration)
        except (InvalidProgram, InvalidConfiguration) as error:
            raise bad_request(str(error)) from error
        return JobGraph(
            job_id=id_field(body, "jobId"),
            name=text_field(body, "jobName") or configuration.get(JOB_NAME_KEY) or function or module,
            jar_id=program.jar_id,
            entry_class=entry_class,
            program_args=_program_args(body),
            parallelism=_parallelism(body),
            savepoint_path=text_field(body, "savepointPath") or recovery.path,
            allow_non_restored_state=flag_field(body, "allowNonRestoredState", default=recovery.ignore_unclaimed_state),
            claim_mode=_claim_mode(body, recovery.claim_mode),
            configuration=configuration,
            is_automatic_restore=flag_field(body, "automaticRestore"),
            submitted_ms=self._services.clock.now_ms(),
        )

    def _check_storage(self, configuration: Mapping[str, str]) -> None:
        parsed = CheckpointConfiguration.parse(configuration)
        in_memory = parsed.storage is CheckpointStorageKind.JOBMANAGER
        if in_memory and self._services.settings.high_availability is HighAvailabilityMode.ZOOKEEPER:
            allowed = "use filesystem with ZooKeeper, because the next leader cannot read this job manager's memory"
            raise InvalidConfiguration("execution.checkpointing.storage", parsed.storage.value, allowed)

    async def _check_directories(self, configuration: Mapping[str, str]) -> None:
        settings = self._services.settings
        parsed = CheckpointConfiguration.parse(configuration)
        for key, directory, roots in (
            ("dir", parsed.checkpoint_directory, settings.restore_roots),
            ("savepoint-dir", parsed.savepoint_directory, settings.savepoint_roots),
        ):
            if directory is not None:
                await resolve_in_roots(self._services, roots, directory, f"execution.checkpointing.{key}")


def _described(program: Program) -> dict[str, Any]:
    entry = [{"name": name, "description": None} for name in entry_functions(program)]
    return {"id": program.jar_id, "name": program.name, "uploaded": program.uploaded_ms, "entry": entry}


def _with_query(request: Request, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body's fields, and the fields that only the query has. `programArg` is a list, separated by commas."""
    query = request.query_params
    values: dict[str, Any] = {
        _QUERY_FIELDS[name]: text for name, text in query.items() if name in _QUERY_FIELDS and text
    }
    if lists := [text for text in query.getlist("programArg") if text]:
        values["programArgsList"] = ",".join(lists).split(",")
    given = {name: value for name, value in body.items() if value is not None and value != ""}
    if given.keys() & _ARGUMENTS:
        values = {name: value for name, value in values.items() if name not in _ARGUMENTS}
    return {**values, **given}


def _configuration(body: Mapping[str, Any]) -> dict[str, str]:
    value = body.get("flinkConfiguration")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request("flinkConfiguration: an object of keys and values is expected")
    wrong = [key for key, item in value.items() if not isinstance(item, str | int | float | bool)]
    if wrong:
        raise bad_request(f"flinkConfiguration: {wrong[0]} has a value that is neither a text nor a number")
    texts = {key: str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}
    _refuse_hidden("flinkConfiguration", texts)
    return texts


def _refuse_hidden(field: str, texts: Mapping[str, str]) -> None:
    """Raise if a value contains the placeholder for a secret in `/jobs/:id/config`: the job would start and fail."""
    for name, text in texts.items():
        if HIDDEN in text:
            raise bad_request(f"{field}: {name} has a hidden value ({HIDDEN}); write the value itself")


def _program_args(body: Mapping[str, Any]) -> tuple[str, ...]:
    arguments = _split_args(body)
    _refuse_hidden("programArgsList", {f"argument {number + 1}": text for number, text in enumerate(arguments)})
    return arguments


def _split_args(body: Mapping[str, Any]) -> tuple[str, ...]:
    text, arguments = text_field(body, "programArgs"), body.get("programArgsList")
    if arguments is None:
        try:
            return tuple(shlex.split(text or ""))
        except ValueError as error:
            raise bad_request(f"programArgs: {text!r} is not allowed; {error}") from error
    if text is not None:
        raise bad_request("programArgs and programArgsList: only one of them is allowed")
    if not isinstance(arguments, list) or not all(isinstance(item, str) for item in arguments):
        raise bad_request("programArgsList: a list of texts is expected")
    return tuple(arguments)


def _parallelism(body: Mapping[str, Any]) -> int | None:
    value = body.get("parallelism")
    if value is None:
        return None
    number = whole_number(value)
    if number is None or not 1 <= number <= MAX_PARALLELISM:
        raise bad_request(f"parallelism: {value!r} is not allowed; a whole number from 1 to {MAX_PARALLELISM}")
    return number


def _claim_mode(body: Mapping[str, Any], configured: str) -> str:
    """Return the claim mode. `restoreMode` is its name before Flink 1.20. LEGACY behaves like NO_CLAIM here."""
    key = "claimMode" if body.get("claimMode") else "restoreMode"
    return choice_field(body, key, CLAIM_MODES, configured)
