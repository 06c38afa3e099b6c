"""Submitting from the command line: what is asked for, and following the job until it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointing.rest.client import JobManagerClient

_POLL_S = 0.5
_ENDED = ("FAILED", "CANCELED", "SUSPENDED")


class JobDidNotStart(Exception):
    """The job failed, or did not run in time; the text says why."""


@dataclass(frozen=True)
class Submission:
    program: Path
    entry_class: str
    name: str | None
    arguments: Mapping[str, str]
    settings: Mapping[str, str]
    parallelism: int | None
    savepoint: str | None
    allow_non_restored_state: bool

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
    ) -> Submission:
        """`program`: `path/wordcount.py:function` or `path/jobs.zip:module:function`. ValueError says what is wrong."""
        path, entry = _split_program(program)
        return cls(
            path,
            entry,
            name,
            _pairs("--arg", arguments),
            _pairs("--conf", settings),
            parallelism,
            str(Path(savepoint).absolute()) if savepoint and not savepoint.startswith("file:") else savepoint,
            allow_non_restored_state,
        )

    def request(self) -> dict[str, Any]:
        """The body of `/jars/:id/run`."""
        body: dict[str, Any] = {
            "entryClass": self.entry_class,
            "programArgsList": [part for key, value in self.arguments.items() for part in (f"--{key}", value)],
            "flinkConfiguration": dict(self.settings),
            "allowNonRestoredState": self.allow_non_restored_state,
        }
        optional = {"jobName": self.name, "parallelism": self.parallelism, "savepointPath": self.savepoint}
        return body | {key: value for key, value in optional.items() if value is not None}


def follow_until_running(
    client: JobManagerClient,
    job_id: str,
    say: Callable[[str], object],
    monotonic: Callable[[], float],
    wait: Callable[[float], None],
    timeout_s: float,
) -> None:
    """Say each status as it comes, until the job runs or has finished. JobDidNotStart otherwise, with the cause."""
    deadline = monotonic() + timeout_s
    shown = ""
    while True:
        status = str(client.get(f"/jobs/{job_id}/status")["status"])
        if status != shown:
            say(status)
            shown = status
        if status in ("RUNNING", "FINISHED"):
            return
        if status in _ENDED:
            raise JobDidNotStart(_cause(client, job_id) or f"The job is {status}.")
        if monotonic() > deadline:
            cause = _cause(client, job_id)
            raise JobDidNotStart(f"The job is {status} after {timeout_s:g} s." + (f"\n{cause}" if cause else ""))
        wait(_POLL_S)


def _cause(client: JobManagerClient, job_id: str) -> str:
    entries = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    return str(entries[0]["stacktrace"]) if entries else ""


def _split_program(text: str) -> tuple[Path, str]:
    for suffix in (".py", ".zip"):
        path, found, entry = text.rpartition(f"{suffix}:")
        if found and entry:
            file = Path(path + suffix)
            return file, (f"{file.name}:{entry}" if suffix == ".py" else entry)
    raise ValueError(f"{text!r} is not allowed; PROGRAM.py:FUNCTION or PROGRAM.zip:MODULE:FUNCTION is expected")


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"{option}: {text!r} is not allowed; KEY=VALUE is expected")
        pairs[key] = value
    return pairs
