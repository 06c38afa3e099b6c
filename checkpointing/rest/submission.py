"""Submits from the command line: parses the arguments, and follows the job until it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpointing.jobs.known_keys import DIRECTORY, check_keys
from checkpointing.jobs.launching.admission import Lacking
from checkpointing.jobs.python_environments.source import REQUIREMENTS
from checkpointing.model.job_environment import SECRET, SECRET_FILE, without_secrets
from checkpointing.model.refusals import Refusal, Refused
from checkpointing.rest.client import NO_LEADER, JobManagerClient, JobManagerUnreachable, RequestRefused
from checkpointing.rest.job_operations import time_text
from checkpointing.rest.launch_wait import launch_wait_text
from checkpointing.rest.rows_written_again import writing_again
from checkpointing.storage.locations import as_absolute

_POLL_S = 0.5
_STACK_LINES = 40
# FAILING has the cause of a failure. FAILED has one, too, if the job never was FAILING.
_TELLING = ("FAILING", "FAILED")
_ENDED = ("FAILED", "CANCELED", "SUSPENDED")


class BadLocations(Refused, ValueError):
    """The given locations are not one location for each query. The text says what is wrong."""


class JobFailed(Exception):
    """The job failed, was canceled, or did not run in time. The text says why; `stack` is "" if unknown."""

    def __init__(self, text: str, stack: str = "") -> None:
        super().__init__(text)
        self.stack = stack


@dataclass(frozen=True)
class Submission:
    """A submission. `arguments` are the program's, as in a script's `sys.argv[1:]`.

    `checkpoints` are Spark's checkpoint locations to start from, by query; the query "" is the program's only one.
    """

    program: Path
    entry_class: str
    name: str | None
    arguments: Sequence[str]
    settings: Mapping[str, str]
    parallelism: int | None
    savepoint: str | None
    allow_non_restored_state: bool
    checkpoints: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(
        cls,
        program: str,
        *,
        name: str | None,
        arguments: Sequence[str],
        settings: Sequence[str],
        parallelism: int | None,
        savepoint: str | None,
        allow_non_restored_state: bool,
        secrets: Sequence[str] = (),
        secret_files: Sequence[str] = (),
        more_arguments: Sequence[str] = (),
        requirements: str | None = None,
        checkpoints: Sequence[str] = (),
        directory: str | None = None,
    ) -> Submission:
        """Parse the options.

        `program`: `path/script.py`, `path/wordcount.py:function` or `path/jobs.zip:module:function`.

        `arguments` are written KEY=VALUE and become `--KEY VALUE`; `more_arguments` stay unchanged. `secrets` and
        `secret_files` are NAME=FILE: the value is the file's content. `checkpoints` are written LOCATION or
        NAME=LOCATION. The program's relative paths are below `directory`. Raise ValueError with a description of the
        problem, or OSError if a file cannot be read.
        """
        if savepoint and checkpoints:
            raise ValueError("--from-savepoint and --from-checkpoint: only one of them is allowed")
        path, entry = _split_program(program)
        given = {DIRECTORY: directory} if directory else {}
        configuration = given | _pairs("--conf", settings) | _requirements(requirements)
        check_keys(configuration)
        _refuse_secrets(configuration)
        read = {f"{SECRET}{name}": text.strip() for name, text in _contents("--secret", secrets)}
        files = {f"{SECRET_FILE}{name}": text for name, text in _contents("--secret-file", secret_files)}
        configuration |= read | files
        return cls(
            path,
            entry,
            name,
            [
                *(part for key, value in _pairs("--arg", arguments).items() for part in (f"--{key}", value)),
                *more_arguments,
            ],
            configuration,
            parallelism,
            as_absolute(savepoint) if savepoint else None,
            allow_non_restored_state,
            _locations(checkpoints),
        )

    def request(self) -> dict[str, Any]:
        """Return the body of `/jars/:id/run`."""
        body: dict[str, Any] = {
            "entryClass": self.entry_class,
            "programArgsList": list(self.arguments),
            "flinkConfiguration": dict(self.settings),
            "allowNonRestoredState": self.allow_non_restored_state,
        }
        optional = {"jobName": self.name, "parallelism": self.parallelism, "savepointPath": self.savepoint}
        return body | {key: value for key, value in optional.items() if value is not None}


def import_checkpoints(
    client: JobManagerClient,
    submission: Submission,
    monotonic: Callable[[], float],
    wait: Callable[[float], None],
    timeout_s: float,
) -> str:
    """Let the job manager make a savepoint from the checkpoint locations. Return its location. Raise JobFailed."""
    body = {"checkpoints": dict(submission.checkpoints), "entryClass": submission.entry_class}
    trigger = client.post("/savepoints/import", body)["request-id"]
    deadline = monotonic() + timeout_s
    while True:
        found = client.get(f"/savepoints/import/{trigger}")
        if found["operation"] is not None:
            break
        if monotonic() > deadline:
            raise JobFailed(f"The checkpoint location is still being copied after {timeout_s:g} s; see --timeout.")
        wait(_POLL_S)
    if (cause := found["operation"].get("failure-cause")) is not None:
        text = str(cause["stack-trace"]).removeprefix(f"{cause['class']}: ").splitlines()[0]
        raise JobFailed(f"--from-checkpoint: {text}")
    return str(found["operation"]["location"])


def newest_batches(client: JobManagerClient, checkpoints: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each location about its newest batch, and its start by the clock of the old driver."""
    for found in client.post("/savepoints/import/validate", {"checkpoints": dict(checkpoints)})["checkpoints"]:
        if found["valid"]:
            began = found["batchTimestamp"]
            when = "" if began is None else f", which began at {time_text(began)}"
            yield f"{found['query'] or 'The query'} continues after batch {found['batch']}{when}."


def queries_writing_again(client: JobManagerClient, savepoint: str) -> Sequence[Mapping[str, Any]]:
    """Return the queries of a snapshot that write rows a second time after a restore, as `writing_again` does."""
    verdict = client.post("/savepoints/validate", {"savepointPath": savepoint})
    return writing_again(verdict.get("queries") or ())


def follow(
    client: JobManagerClient,
    job_id: str,
    say: Callable[[str], object],
    monotonic: Callable[[], float],
    wait: Callable[[float], None],
    timeout_s: float,
    *,
    until_finished: bool = False,
) -> None:
    """Pass each new status to `say` until the job runs, or is FINISHED. Otherwise raise JobFailed with the cause.

    `timeout_s` limits the time until the job runs for the first time. While no job manager answers, the request is
    repeated: the job is stored, and this job manager or the next one continues it.
    """
    deadline = monotonic() + timeout_s
    shown: tuple[str, str | None, str | None] = ("", None, None)
    while True:
        job = _job_details(client, job_id)
        status = str(job["state"]) if job else "unknown: no job manager answers"
        waits = job.get("launch-wait") or {}
        if waits.get("for") == Lacking.ENVIRONMENT.value:
            deadline = monotonic() + timeout_s  # the job manager limits the preparation of environments itself
        said = (status, waits.get("for"), waits.get("step"))
        if said != shown:  # a change of the queue position, or of pip's last line, is not logged
            say(f"{status}: {launch_wait_text(waits)}" if waits else status)
            shown = said
        if status == "FINISHED" or (status == "RUNNING" and not until_finished):
            return
        if status == "RUNNING":
            deadline = math.inf
        if status in _ENDED:
            if job.get("attempts"):
                say(f"See the log: manage.py job logs {job_id}")
            raise JobFailed(_with_cause(f"The job is {status}", job), _stack(client, job_id))
        if monotonic() > deadline:
            text = _with_cause(f"The job is {status} after {timeout_s:g} s", job)
            if waits:
                text = f"The job is {status} after {timeout_s:g} s: it {launch_wait_text(waits)}."
            raise JobFailed(f"{text}\nThe job manager still tries to start job {job_id}. Cancel the job to stop this.")
        wait(_POLL_S)


def _job_details(client: JobManagerClient, job_id: str) -> Mapping[str, Any]:
    """Return the job's details, empty while no leader answers."""
    try:
        return client.get(f"/jobs/{job_id}")
    except JobManagerUnreachable:
        return {}
    except RequestRefused as error:
        if error.status != NO_LEADER:
            raise
        return {}


def _with_cause(text: str, job: Mapping[str, Any]) -> str:
    """Return one sentence with the cause."""
    moves = job.get("status-history", ())
    causes = [move["cause"] for status in _TELLING for move in reversed(moves) if move["status"] == status]
    return f"{text}: {causes[0].splitlines()[0]}" if causes else f"{text}."


def _stack(client: JobManagerClient, job_id: str) -> str:
    """Return the start of the newest failure's stack, where Python's traceback is.

    A single line does not count as one.
    """
    try:
        entries = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    except (JobManagerUnreachable, RequestRefused):
        return ""
    lines = str(entries[0]["stacktrace"]).splitlines() if entries else []
    return "\n".join(lines[:_STACK_LINES]) if len(lines) > 1 else ""


def _split_program(text: str) -> tuple[Path, str]:
    for suffix in (".py", ".zip", ".whl"):
        path, found, entry = text.rpartition(f"{suffix}:")
        if found and entry:
            file = Path(path + suffix)
            return file, (f"{file.name}:{entry}" if suffix == ".py" else entry)
    if text.endswith(".py"):
        return Path(text), Path(text).name
    raise ValueError(
        f"{text!r} is not allowed; SCRIPT.py, PROGRAM.py:FUNCTION or PROGRAM.zip:MODULE:FUNCTION is expected"
    )


def _refuse_secrets(configuration: Mapping[str, str]) -> None:
    for key in configuration.keys() - without_secrets(configuration).keys():
        option = "--secret-file" if key.startswith(SECRET_FILE) else "--secret"
        raise ValueError(
            f"--conf: {key} is not allowed, because other users can read a command line; write {option} NAME=FILE"
        )


def _requirements(file: str | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        return {REQUIREMENTS: Path(file).read_text()}
    except UnicodeDecodeError as error:
        raise ValueError(f"--requirements: {file} is not a UTF-8 text") from error


def _contents(option: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name, file in _pairs(option, texts, "NAME=FILE").items():
        try:
            yield name, Path(file).read_text()
        except UnicodeDecodeError as error:
            raise ValueError(f"{option}: {file} is not a UTF-8 text") from error


def locations_by_query(texts: Sequence[str]) -> dict[str, str]:
    """Return checkpoint locations by their query. Each text is `LOCATION` or `NAME=LOCATION`; BadLocations.

    A location may contain `=`, as in `/data/day=1`.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, location = text.partition("=")
        if not equals or "/" in name:
            name, location = "", text
        if name in found:
            if not name:
                raise BadLocations(Refusal.NAME_NEEDED)
            raise BadLocations(Refusal.TWO_LOCATIONS, query=repr(name))
        if not location:
            raise BadLocations(Refusal.LOCATION_NEEDED, text=repr(text))
        found[name] = location
    if "" in found and len(found) > 1:
        raise BadLocations(Refusal.NAME_NEEDED)
    return found


def _locations(texts: Sequence[str]) -> dict[str, str]:
    try:
        return {name: as_absolute(location) for name, location in locations_by_query(texts).items()}
    except ValueError as error:
        raise ValueError(f"--from-checkpoint: {error}") from error


def _pairs(option: str, texts: Sequence[str], expected: str = "KEY=VALUE") -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"{option}: {text!r} is not allowed; {expected} is expected")
        pairs[key] = value
    return pairs
