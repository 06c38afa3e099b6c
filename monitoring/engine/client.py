"""The only client of an engine: Flink's REST API, typed. It maps each failure to one of these exceptions.

    EngineError
    ├── Unreachable   no answer, or a broken one: refused, timed out, cut short; `kind` says which. The engine may
    │                 have executed a command
    ├── NotReady      the engine answers, but has no leader or is still starting. This proves nothing about any job
    │   ├── RootUnreadable  the directory of checkpoint locations cannot be listed
    │   └── RequestNotSent  Waymark sent no request, because a secret, a certificate or an allowed address is missing
    ├── NotFound      404: no such job, checkpoint, operation or endpoint
    ├── Refused       any other error answer, with its status
    │   └── Redirected   a redirect, which the client does not follow
    └── Malformed     an answer that does not match the API; the reason names the field

A client is an asynchronous context manager, belongs to one event loop, and keeps its connections open:

    async with client_for(cluster) as engine:
        jobs = await engine.jobs_overview()
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import PurePosixPath
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import aiohttp

from monitoring.engine import causes, operations
from monitoring.engine.answers import (
    CheckpointConfig,
    Checkpoints,
    CheckpointStats,
    DriverLog,
    FoundCheckpoint,
    JarFile,
    JobConfig,
    JobDetail,
    JobException,
    JobOverview,
    LogMatches,
    LogPart,
    ManagerConfig,
    OperatorSubtasks,
    Overview,
    SavepointValidation,
    SourceRows,
    WebConfig,
)
from monitoring.engine.answers.configuration import launch_record
from monitoring.engine.connection import Connection, connection_of
from monitoring.engine.errors import (
    ConnectionFailure,
    EngineError,
    Malformed,
    NotFound,
    NotReady,
    Refused,
    Unreachable,
)
from monitoring.engine.fields import Fields, decode
from monitoring.engine.operations import Forgotten, Operation
from monitoring.engine.reported.event_logs import EventLogTransport
from monitoring.engine.reported.transport import ReportedTransport
from monitoring.engine.silence import unreachable
from monitoring.engine.transport import BODY_LIMIT, Answer, Transport
from monitoring.engine.watched import WatchedTransport
from monitoring.models import Cluster
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.refusals import refusal_in

T = TypeVar("T")

# An engine answers only when it has started the program, which may take long.
COMMAND_LIMIT_S = 60.0

_STARTING = ("UnavailableDispatcherOperationException", "leader election", "JobMaster is not initialized")


class FlinkClient:
    """A client of one engine. Job, trigger and vertex IDs are 32 hexadecimal digits.

    `watched` is the transport for a directory of checkpoint locations, `event_logs` that for event logs, and `reported`
    that for reports of the agent or of event logs. All are None for a server. `scanning` is the one with a progress.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        read_limit_s: float | None = None,
        command_limit_s: float = COMMAND_LIMIT_S,
        body_limit: int = BODY_LIMIT,
    ) -> None:
        self._base_url = connection.url
        self._read_limit_s = connection.request_limit_s if read_limit_s is None else read_limit_s
        self._command_limit_s = command_limit_s
        self.watched = WatchedTransport(connection) if connection.is_directory else None
        self.event_logs = EventLogTransport(connection) if connection.has_event_logs else None
        by_agent = connection.reported_for is not None and not connection.has_event_logs
        self.reported = ReportedTransport(connection) if by_agent else self.event_logs
        self._transport = self.watched or self.reported or Transport(connection, body_limit)

    @property
    def scanning(self) -> WatchedTransport | EventLogTransport | None:
        return self.watched or self.event_logs

    @property
    def url(self) -> str:
        return self._base_url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. The next request opens new ones."""
        await self._transport.close()

    # --- reads

    async def overview(self) -> Overview:
        return Overview.parse(await self._get("/overview"))

    async def web_config(self) -> WebConfig:
        return WebConfig.parse(await self._get("/config"))

    async def manager_config(self) -> ManagerConfig:
        path = "/jobmanager/config"
        return ManagerConfig.parse(_decoded(await self._read("GET", path, self._read_limit_s), path), path)

    async def manager_config_if_shown(self) -> ManagerConfig | None:
        """Return the configuration, or None if this engine does not show it.

        Raises:
            EngineError: a later request may get another answer.
        """
        try:
            return await self.manager_config()
        except NotFound:
            return None
        except Refused as refused:
            if refused.is_request_invalid:
                return None
            raise

    async def server_date(self) -> datetime | None:
        """Return the server's time to the second, None if unknown.

        Flink sends it only with its pages, Waymark's job manager with every answer.
        """
        try:
            answer = await self._exchange("GET", "/", self._read_limit_s, None, None)
        except EngineError:
            return None
        return _date(answer.headers.get("Date", ""))

    async def jobs_overview(self) -> tuple[JobOverview, ...]:
        """Return all jobs. Raise Malformed if one cannot be read, because a decision must not overlook a job."""
        jobs, misread = await self.jobs_by_id()
        if misread:
            raise misread[0]
        return tuple(jobs.values())

    async def jobs_by_id(
        self, known: Mapping[str, JobOverview] | None = None
    ) -> tuple[dict[str, JobOverview], tuple[Malformed, ...]]:
        """Return the readable jobs by ID, and an error for each of the others.

        `known` is the result of the previous call. An unchanged job is the same object as in `known`.
        """
        return JobOverview.parse_all(await self._get("/jobs/overview"), known or {})

    async def job(self, job_id: str) -> JobDetail:
        return JobDetail.parse(await self._get(f"/jobs/{_part(job_id)}"))

    async def archived_job(self, job_id: str) -> JobOverview:
        """Return the job from a History Server, which has only jobs that have ended."""
        job = JobOverview.parse(await self._get(f"/jobs/{_part(job_id)}"))
        return replace(job, moved_at=job.ended_at)

    async def source_rows(self, job_id: str) -> list[SourceRows]:
        return SourceRows.parse_all(await self._get(f"/jobs/{_part(job_id)}"))

    async def checkpoints(self, job_id: str) -> Checkpoints:
        """Return the job's checkpoints. Raise NotFound also when checkpointing is not enabled for the job."""
        path = f"/jobs/{_part(job_id)}/checkpoints"
        return Checkpoints.parse(await self._get(path))

    async def checkpoints_unless(
        self, job_id: str, known: int | None, entries: Mapping[int, CheckpointStats]
    ) -> tuple[int, Checkpoints | None]:
        """Return the answer's digest and the answer, or None without parsing it if the digest equals `known`.

        Digests are valid only in this process. `entries` are the earlier parsed checkpoints, see Checkpoints.parse.
        """
        path = f"/jobs/{_part(job_id)}/checkpoints"
        content = await self._read("GET", path, self._read_limit_s)
        digest = hash(content)
        return digest, None if digest == known else Checkpoints.parse(Fields(decode(content), path), entries)

    async def checkpoint_config(self, job_id: str) -> CheckpointConfig:
        return CheckpointConfig.parse(await self._get(f"/jobs/{_part(job_id)}/checkpoints/config"))

    async def checkpoint_details(self, job_id: str, checkpoint_id: int) -> CheckpointStats:
        path = f"/jobs/{_part(job_id)}/checkpoints/details/{checkpoint_id}"
        return CheckpointStats.parse(await self._get(path))

    async def checkpoint_subtasks(self, job_id: str, checkpoint_id: int, vertex_id: str) -> OperatorSubtasks:
        path = f"/jobs/{_part(job_id)}/checkpoints/details/{checkpoint_id}/subtasks/{_part(vertex_id)}"
        return OperatorSubtasks.parse(await self._get(path))

    async def exceptions(self, job_id: str) -> tuple[JobException, ...]:
        """Return the exceptions, newest first, each followed by the concurrent exceptions of other tasks."""
        answer = await self._get(f"/jobs/{_part(job_id)}/exceptions")
        history = answer.optional_child("exceptionHistory")
        entries = [] if history is None else history.children("entries")
        return tuple(each for entry in entries for each in JobException.parse_with_concurrent(entry))

    async def job_config(self, job_id: str) -> JobConfig:
        """Return the job's configuration.

        Waymark's job manager hides secrets in this answer, so the launch record is read from another endpoint.
        """
        config = JobConfig.parse(await self._get(f"/jobs/{_part(job_id)}/config"))
        if not config.hides_secrets:
            return config
        return replace(config, launch=launch_record(await self._get(f"/jobs/{_part(job_id)}/launch")))

    async def driver_logs(self, job_id: str) -> tuple[DriverLog, ...]:
        """Return the driver logs, newest attempt first. Raise NotFound also for Flink, which has no logs by job."""
        answer = await self._get(f"/jobs/{_part(job_id)}/logs")
        return tuple(DriverLog.parse(log) for log in answer.children("logs"))

    async def driver_log(self, job_id: str, name: str, start: int, length: int) -> LogPart:
        """Return `length` bytes of a log from `start`, or its last `length` bytes if `start` is negative."""
        path = f"/jobs/{_part(job_id)}/logs/{_part(name)}"
        asked = f"bytes=-{length}" if start < 0 else f"bytes={start}-{start + length - 1}"
        answer = await self._exchange("GET", path, self._read_limit_s, None, None, asked)
        if answer.status not in (200, 206, 416):
            raise _error(answer, path)
        return _log_part(answer, path)

    async def search_log(self, job_id: str, name: str, text: str) -> LogMatches:
        path = f"/jobs/{_part(job_id)}/logs/{_part(name)}/search?text={quote(text, safe='')}"
        return LogMatches.parse(await self._get(path))

    async def log_position(self, job_id: str, name: str, at: datetime) -> int:
        """Return the position of the first line that was written at `at` or later."""
        path = f"/jobs/{_part(job_id)}/logs/{_part(name)}/position?time={round(at.timestamp() * 1000)}"
        return (await self._get(path)).whole("offset")

    async def jars(self) -> tuple[JarFile, ...]:
        return tuple(JarFile.parse(jar) for jar in (await self._get("/jars")).children("files"))

    async def program(self, jar_id: str) -> bytes:
        """Return the program's file. Raise NotFound for Flink, which does not serve it."""
        return await self._read("GET", f"/jars/{_part(jar_id)}/content", self._command_limit_s)

    # --- commands

    async def trigger_savepoint(self, job_id: str, trigger_id: str, target_directory: str | None = None) -> str:
        """Trigger a savepoint and return the request ID. A repeated `trigger_id` never starts a second savepoint."""
        body: dict[str, object] = {"triggerId": trigger_id, "cancel-job": False}
        if target_directory:
            body["target-directory"] = target_directory
        return (await self._command("POST", f"/jobs/{_part(job_id)}/savepoints", body)).text("request-id")

    async def stop_with_savepoint(
        self, job_id: str, trigger_id: str, drain: bool = False, target_directory: str | None = None
    ) -> str:
        """Stop the job and return the request ID, for `savepoint_status`. A repeated `trigger_id` changes nothing."""
        body: dict[str, object] = {"triggerId": trigger_id, "drain": drain}
        if target_directory:
            # The request for a savepoint has another spelling of this key in Flink.
            body["targetDirectory"] = target_directory
        return (await self._command("POST", f"/jobs/{_part(job_id)}/stop", body)).text("request-id")

    async def savepoint_status(self, job_id: str, trigger_id: str) -> Operation[str]:
        """Return the status of a savepoint or of a stop. The result of Done is the savepoint's path."""
        path = f"/jobs/{_part(job_id)}/savepoints/{_part(trigger_id)}"
        return await self._operation(path, lambda operation: operation.text("location"))

    async def trigger_checkpoint(self, job_id: str, trigger_id: str | None = None, *, full: bool = False) -> str:
        """Trigger a checkpoint and return the request ID. A repeated `trigger_id` never starts a second checkpoint.

        Raises:
            NotFound: Flink is older than 1.17.
        """
        body: dict[str, object] = {"checkpointType": "FULL"} if full else {}
        if trigger_id:
            body["triggerId"] = trigger_id
        return (await self._command("POST", f"/jobs/{_part(job_id)}/checkpoints", body)).text("request-id")

    async def checkpoint_status(self, job_id: str, trigger_id: str) -> Operation[int]:
        """Return the status of a checkpoint. The result of Done is the checkpoint's ID."""
        path = f"/jobs/{_part(job_id)}/checkpoints/{_part(trigger_id)}"
        return await self._operation(path, lambda operation: operation.whole("checkpointId"))

    async def dispose_savepoint(self, path: str) -> str:
        """Request the deletion of the savepoint's files, and return the request ID.

        The caller cannot choose the ID. After a lost answer the caller repeats the request, which fails if the
        savepoint is already deleted.
        """
        return (await self._command("POST", "/savepoint-disposal", {"savepoint-path": path})).text("request-id")

    async def disposal_status(self, trigger_id: str) -> Operation[None]:
        return await self._operation(f"/savepoint-disposal/{_part(trigger_id)}", lambda operation: None)

    async def cancel(self, job_id: str) -> None:
        """Request a cancellation without a savepoint. Repeatable. The job ends later: its status shows when."""
        await self._command("PATCH", f"/jobs/{_part(job_id)}?mode=cancel", None)

    async def run_jar(
        self,
        jar_id: str,
        *,
        job_id: str,
        entry_class: str | None = None,
        program_args: Sequence[str] = (),
        parallelism: int | None = None,
        savepoint_path: str | None = None,
        allow_non_restored_state: bool = False,
        configuration: Mapping[str, str] | None = None,
        job_name: str | None = None,
        automatic_restore: bool = False,
    ) -> str:
        """Start a program under `job_id` and return the engine's job ID.

        The caller chooses `job_id`. If the answer is lost, the caller finds the job by this ID and need not start it
        again. `automatic_restore` informs Waymark's job manager that no person requested the restore of
        `savepoint_path`.
        """
        settings = dict(configuration or {})
        if job_name:
            settings["pipeline.name"] = job_name
        wanted: dict[str, object | None] = {
            "jobId": job_id,
            "entryClass": entry_class,
            "programArgsList": list(program_args) or None,
            "parallelism": parallelism,
            "savepointPath": savepoint_path,
            "allowNonRestoredState": allow_non_restored_state or None,
            "flinkConfiguration": settings or None,
            "automaticRestore": automatic_restore or None,
        }
        body = {name: value for name, value in wanted.items() if value is not None}
        return (await self._command("POST", f"/jars/{_part(jar_id)}/run", body)).identifier("jobid")

    async def upload_jar(self, name: str, content: bytes) -> str:
        """Upload a program and return its ID for `run_jar`.

        Engines accept `.jar`; Waymark's job manager also accepts `.py` and `.zip`.
        """
        boundary = uuid.uuid4().hex
        part = f'Content-Disposition: form-data; name="jarfile"; filename="{quote(name)}"\r\n'
        head = f"--{boundary}\r\n{part}Content-Type: application/x-java-archive\r\n\r\n"
        body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
        kind = f"multipart/form-data; boundary={boundary}"
        answer = await self._call("POST", "/jars/upload", self._command_limit_s, content=body, kind=kind)
        return PurePosixPath(answer.text("filename")).name

    async def delete_jar(self, jar_id: str) -> None:
        """Delete a program. Jobs that were started from it continue. Raise NotFound or Refused if it does not exist."""
        await self._command("DELETE", f"/jars/{_part(jar_id)}", None)

    async def find_checkpoints(self, locations: Mapping[str, str]) -> tuple[FoundCheckpoint, ...]:
        """Return what the job manager finds at Spark's checkpoint locations. Raise NotFound for Flink.

        `locations` are by the name of their query.
        """
        answer = await self._command("POST", "/savepoints/import/validate", {"checkpoints": dict(locations)})
        return tuple(FoundCheckpoint.parse(each) for each in answer.children("checkpoints"))

    async def import_checkpoints(
        self, locations: Mapping[str, str], entry_class: str | None, trigger_id: str
    ) -> Operation[str]:
        """Start to copy the locations into a savepoint, unless `trigger_id` started already, and return the status.

        The result of Done is the savepoint's path. Raise NotFound for Flink.
        """
        body = {"checkpoints": dict(locations), "entryClass": entry_class, "triggerId": trigger_id}
        await self._command("POST", "/savepoints/import", body)
        return await self._operation(f"/savepoints/import/{_part(trigger_id)}", lambda each: each.text("location"))

    async def validate_savepoint(self, path: str, entry_class: str | None = None) -> SavepointValidation | None:
        """Validate a savepoint before use. Return None for Flink: only Waymark's job manager can validate one."""
        body: dict[str, object] = {"savepointPath": path}
        if entry_class:
            body["entryClass"] = entry_class
        try:
            return SavepointValidation.parse(await self._command("POST", "/savepoints/validate", body))
        except NotFound:
            return None
        except Refused as error:
            if error.status == 405:
                return None
            raise

    # --- transport

    async def _operation(self, path: str, result: Callable[[Fields], T]) -> Operation[T]:
        try:
            return operations.parse(await self._get(path), result)
        except NotFound:
            return Forgotten()

    async def _get(self, path: str) -> Fields:
        return await self._call("GET", path, self._read_limit_s)

    async def _command(self, method: str, path: str, body: Mapping[str, object] | None) -> Fields:
        content = None if body is None else json.dumps(body).encode()
        return await self._call(method, path, self._command_limit_s, content=content, kind="application/json")

    async def _call(
        self, method: str, path: str, limit_s: float, *, content: bytes | None = None, kind: str | None = None
    ) -> Fields:
        return Fields(_decoded(await self._read(method, path, limit_s, content=content, kind=kind), path), path)

    async def _read(
        self, method: str, path: str, limit_s: float, *, content: bytes | None = None, kind: str | None = None
    ) -> bytes:
        answer = await self._exchange(method, path, limit_s, content, kind)
        if 200 <= answer.status < 300:
            return answer.content
        raise _error(answer, path)

    async def _exchange(
        self, method: str, path: str, limit_s: float, content: bytes | None, kind: str | None, byte_range: str = ""
    ) -> Answer:
        """Send one request and return the answer. `limit_s` is the limit for both together."""
        try:
            return await self._transport.ask(method, path, limit_s, content, kind, byte_range)
        except aiohttp.ConnectionTimeoutError as error:
            raise unreachable(self._base_url, error) from error
        except TimeoutError as error:
            reason = EngineReason.TOO_SLOW(url=self._base_url, path=path, limit_s=limit_s)
            raise Unreachable(reason, ConnectionFailure.TIMED_OUT) from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise unreachable(self._base_url, error) from error


def client_for(cluster: Cluster) -> FlinkClient:
    """Return a client for the cluster. Raise RequestNotSent if its address or a secret is not available."""
    return FlinkClient(connection_of(cluster))


def _decoded(content: bytes, path: str) -> object:
    if content[:100].lstrip()[:1] == b"<":
        raise Malformed(EngineReason.WEB_PAGE(path=path))
    return decode(content)


_CONTENT_RANGE = re.compile(r"bytes (?:(?P<start>\d{1,18})-\d{1,18}|\*)/(?P<size>\d{1,18})")


def _log_part(answer: Answer, path: str) -> LogPart:
    if answer.status == 200:
        return LogPart(0, answer.content, len(answer.content))
    text = answer.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(text)
    if match is None:
        raise Malformed(EngineReason.BAD_RANGE(path=path, text=text))
    size = int(match["size"])
    if answer.status == 416:
        return LogPart(size, b"", size)
    return LogPart(int(match["start"] or 0), answer.content, size)


def _date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None


def _part(text: str) -> str:
    return text if text.isascii() and text.isalnum() else quote(text, safe="")


def _error(answer: Answer, path: str) -> EngineError:
    status, text = answer.status, answer.content.decode(errors="replace")
    message, refusal = _message(answer.content)
    reason = refusal or message or EngineReason.HTTP_STATUS(path=path, status=status)
    if status == 404:
        return NotFound(reason)
    if status == 503 or (status == 500 and any(mark in text for mark in _STARTING)):
        return NotReady(reason, by_proxy=not (message or refusal))
    return Refused(status, reason)


def _message(content: bytes) -> tuple[str, Reason | None]:
    """Return the text of an error answer, and its reason if Waymark's job manager refused the request."""
    try:
        body = decode(content)
    except Malformed:
        return "", None
    if not isinstance(body, dict):
        return "", None
    return causes.from_errors(body.get("errors")), refusal_in(body.get("refusal"))
