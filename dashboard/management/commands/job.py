"""`manage.py job`: show and operate the jobs of the job manager, with the options of Flink's command line."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from checkpointing.rest.client import JobManagerUnreachable, RequestRefused
from checkpointing.rest.job_logs import JobLogs
from checkpointing.rest.job_operations import (
    ENDED,
    SCHEDULED,
    JobNotFound,
    JobOperations,
    OperationFailed,
    StillInProgress,
    find_job,
    time_text,
)
from checkpointing.rest.job_restart import JobRestart
from checkpointing.rest.launch_wait import launch_wait_text
from checkpointing.rest.rows_written_again import targets_of, writing_again
from checkpointing.rest.submission import JobFailed, follow
from checkpointing.storage.locations import as_absolute
from dashboard.management.job_manager import ACCESS_HELP, WAIT_HELP, add_job_manager_option, job_manager_client
from dashboard.management.tables import table_lines

FAILED, USAGE, IN_PROGRESS = 1, 2, 3
EPILOG = f"""\
examples:
  manage.py job list --all
  manage.py job logs Words --follow
  manage.py job stop Words --savepointPath s3://bucket/savepoints
  manage.py job restart 1f0c --from-savepoint /savepoints/savepoint-1f0cde-0a1b2c3d4e5f

JOB is a job's id, a unique prefix of an id, or a name. If several jobs have the name, it means the job that has not
ended, or else the one that started last.

exit codes: 0 done · 1 refused, failed, or no job manager responds · 2 wrong usage, or no such job · 3 in progress
after --timeout; the operation continues · 130 interrupted; the operation continues

{ACCESS_HELP}"""


class Command(BaseCommand):
    help = "List, show, stop, cancel and restart the jobs of the job manager, take savepoints, and read logs."
    requires_system_checks = []  # noqa: RUF012  (Django's own form)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = EPILOG
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = actions.add_parser("list", help="list running and scheduled jobs")
        listing.add_argument("-r", "--running", action="store_true", help="only running jobs")
        listing.add_argument("-s", "--scheduled", action="store_true", help="only jobs that are about to start")
        listing.add_argument("-a", "--all", action="store_true", help="also jobs that have ended")
        show = actions.add_parser("show", help="show status, checkpoints, queries and the last failure of a job")
        logs = actions.add_parser("logs", help="print the driver log of the newest attempt, or of another attempt")
        logs.add_argument("-f", "--follow", action="store_true", help="print new lines until the job has ended")
        logs.add_argument("--attempt", type=int, metavar="N", help="the number of the attempt (default: the newest)")
        logs.add_argument("-n", "--lines", type=_positive, metavar="N", help="print only the last N lines")
        savepoint = actions.add_parser("savepoint", help="take a savepoint; the job keeps running")
        stop = actions.add_parser("stop", help="stop the job with a savepoint")
        cancel = actions.add_parser("cancel", help="cancel the job without a savepoint")
        restart = actions.add_parser(
            "restart",
            help="restart a job: a running job from a new savepoint, an ended job from its newest snapshot",
        )
        again = actions.add_parser("run-again", help="run an ended job again, from its final state")
        for action in (show, logs, savepoint, stop, cancel, restart, again):
            action.add_argument("job", metavar="JOB", help="id, unique prefix of an id, or name")
        savepoint.add_argument(
            "directory", metavar="DIR", nargs="?", type=as_absolute, help="directory for the savepoint"
        )
        stop.add_argument("-p", "--savepointPath", metavar="DIR", type=as_absolute, help="directory for the savepoint")
        stop.add_argument("-d", "--drain", action="store_true", help="as in Flink; a PySpark job refuses it")
        restart.add_argument(
            "--from-savepoint",
            metavar="LOCATION",
            type=as_absolute,
            help="start from this savepoint or retained checkpoint; Waymark cancels a running job after a savepoint",
        )
        again.set_defaults(from_savepoint=None)
        for action in (restart, again):
            action.add_argument("--allow-non-restored-state", action="store_true")
            action.add_argument("--wait", action="store_true", help=WAIT_HELP)
        for action in (savepoint, stop):
            action.add_argument("--detached", action="store_true", help="return at once, with the trigger id")
        for action in (savepoint, stop, cancel, restart, again):
            action.add_argument("--timeout", type=float, default=900.0, help="seconds to wait (900)")
        for action in actions.choices.values():
            action.add_argument("--json", action="store_true", help="print one JSON object")
            add_job_manager_option(action)

    def handle(self, *args: Any, **options: Any) -> None:
        actions: dict[str, Callable[[JobOperations, dict[str, Any]], Mapping[str, Any] | None]] = {
            "list": self._list,
            "show": self._show,
            "logs": self._logs,
            "savepoint": self._savepoint,
            "stop": self._stop,
            "cancel": self._cancel,
            "restart": self._restart,
            "run-again": self._restart,
        }
        self._is_json = bool(options["json"])
        try:
            client = job_manager_client(options["jobmanager"])
            operations = JobOperations(client, time.monotonic, time.sleep, options.get("timeout", 0.0))
            result = actions[options["action"]](operations, options)
        except JobNotFound as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except StillInProgress as error:
            raise CommandError(str(error), returncode=IN_PROGRESS) from error
        except JobFailed as error:
            if error.stack:
                self.stderr.write(error.stack)
            raise CommandError(str(error), returncode=FAILED) from error
        except (OSError, ValueError, JobManagerUnreachable, RequestRefused, OperationFailed) as error:
            raise CommandError(str(error), returncode=FAILED) from error
        if self._is_json and result is not None:
            self._write(result)

    def _write(self, result: Mapping[str, Any]) -> None:
        self.stdout.write(json.dumps(result, ensure_ascii=False))
        self.stdout.flush()

    def _print(self, line: str) -> None:
        """Print a line, unless the output is JSON."""
        if not self._is_json:
            self.stdout.write(line)
            self.stdout.flush()

    @contextlib.contextmanager
    def _interruptible(self, what: str) -> Iterator[None]:
        """If the user presses Ctrl-C, print which operation continues on the job manager."""
        try:
            yield
        except KeyboardInterrupt:
            self.stderr.write(f"Interrupted. {what}")
            raise

    # --- actions: each returns the object that --json prints, or None if it has printed already ---

    def _list(self, operations: JobOperations, options: dict[str, Any]) -> Mapping[str, Any]:
        jobs = [job for job in operations.jobs() if _is_listed(str(job["state"]), options)]
        rows = [("ID", "NAME", "STATUS", "STARTED")]
        rows += [(job["jid"], job["name"], job["state"], time_text(job["start-time"])) for job in jobs]
        for line in table_lines(rows) if jobs else ["No such jobs."]:
            self._print(line)
        return {"jobs": jobs}

    def _show(self, operations: JobOperations, options: dict[str, Any]) -> Mapping[str, Any]:
        path = f"/jobs/{_job(operations, options)['jid']}"
        get = operations.client.get
        shown = {
            "job": get(path),
            "launch": get(f"{path}/config")["launch"],
            "checkpoints": {key: get(f"{path}/checkpoints")[key] for key in ("counts", "latest")},
            "exceptions": get(f"{path}/exceptions")["exceptionHistory"]["entries"],
        }
        for line in table_lines(list(_describe(shown))):
            self._print(line)
        return shown

    def _logs(self, operations: JobOperations, options: dict[str, Any]) -> Mapping[str, Any] | None:
        job_id = _job(operations, options)["jid"]
        logs, last = JobLogs(operations.client, job_id), options["lines"]
        if options["follow"]:
            self._follow(logs, options["attempt"], last)
            return None
        log = logs.log(options["attempt"])
        lines = logs.read(log).decode(errors="replace").splitlines()[-(last or 0) :]
        for line in lines:
            self._print(line)
        return {"job": job_id, "attempt": log["attempt"], "lines": lines}

    def _follow(self, logs: JobLogs, attempt: int | None, last: int | None) -> None:
        """Print each line of the log. With --json, print one object per line."""
        if attempt is not None:
            raise ValueError("--follow: not allowed with --attempt; it follows the newest attempt and the next ones")
        for number, line in logs.follow(time.sleep, last):
            self._write({"job": logs.job_id, "attempt": number, "line": line}) if self._is_json else self._print(line)

    def _savepoint(self, operations: JobOperations, options: dict[str, Any]) -> Mapping[str, Any]:
        job_id = _job(operations, options)["jid"]
        trigger_id = operations.trigger_savepoint(job_id, options["directory"])
        return self._wait_for_savepoint(operations, options, job_id, trigger_id, "The savepoint")

    def _stop(self, operations: JobOperations, options: dict[str, Any]) -> Mapping[str, Any]:
        job_id = _job(operations, options)["jid"]
        trigger_id = operations.trigger_stop(job_id, options["savepointPath"], drain=options["drain"])
        return self._wait_for_savepoint(operations, options, job_id, trigger_id, "The stop with a savepoint")

    def _wait_for_savepoint(
        self, operations: JobOperations, options: dict[str, Any], job_id: str, trigger_id: str, what: str
    ) -> Mapping[str, Any]:
        if options["detached"]:
            self._print(f"{what} of job {job_id} was triggered: {trigger_id}")
            return {"job": job_id, "request-id": trigger_id}

        def in_progress() -> None:
            self._print(f"{what} of job {job_id} is in progress.")

        with self._interruptible(f"{what} continues; see: manage.py job show {job_id}"):
            location = operations.savepoint(job_id, trigger_id, in_progress)
        self._print(f"Savepoint: {location}")
        return {"job": job_id, "request-id": trigger_id, "location": location}

    def _cancel(self, operations: JobOperations, options: dict[str, Any]) -> Mapping[str, Any]:
        job_id = _job(operations, options)["jid"]
        with self._interruptible(f"The cancellation continues; see: manage.py job show {job_id}"):
            operations.cancel(job_id)
        self._print(f"Canceled job {job_id}.")
        return {"job": job_id, "state": "CANCELED"}

    def _restart(self, operations: JobOperations, options: dict[str, Any]) -> Mapping[str, Any]:
        job, lenient = _job(operations, options), options["allow_non_restored_state"]
        only_ended = options["action"] == "run-again"
        savepoint, warn = options["from_savepoint"], self.stderr.write
        restart = JobRestart(operations, job, savepoint, lenient, self._print, warn, only_ended)
        with self._interruptible(f"What was triggered continues; see: manage.py job show {job['jid']}"):
            job_id, location = restart.run()
        with self._interruptible(f"The job continues; see: manage.py job show {job_id}"):
            clock = (operations.monotonic, operations.wait)
            follow(operations.client, job_id, self._print, *clock, operations.timeout_s, until_finished=options["wait"])
        return {"job": job_id, "restarted": job["jid"], "from": location}


def _job(operations: JobOperations, options: dict[str, Any]) -> Mapping[str, Any]:
    return find_job(operations.jobs(), options["job"])


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; a whole number, at least 1")
    return int(text)


def _is_listed(status: str, options: dict[str, Any]) -> bool:
    if options["all"]:
        return True
    is_scheduled, is_running = status in SCHEDULED, status not in SCHEDULED | ENDED
    if options["running"] == options["scheduled"]:
        return is_scheduled or is_running
    return is_running if options["running"] else is_scheduled


def _describe(shown: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    job, launch, latest = shown["job"], shown["launch"], shown["checkpoints"]["latest"]
    yield "Name", job["name"]
    yield "Id", job["jid"]
    yield "Status", f"{job['state']}, started {time_text(job['start-time'])}, {job['restarts']} restarts"
    for attempt in job["attempts"]:
        if attempt["end-time"] == -1 and (process := _process(attempt)):
            yield "Driver", f"{process}, attempt {attempt['attempt']}"
    yield "Program", f"{launch['entryClass']} in {launch['jarId']}"
    if environment := job.get("python-environment"):
        yield "Python", f"made from {environment['kind'] or 'its settings'}: {environment['status'].lower()}"
    counts = shown["checkpoints"]["counts"]
    yield "Checkpoints", ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in _COUNTS)
    for label, name in (("Last checkpoint", "completed"), ("Last savepoint", "savepoint")):
        if found := latest[name]:
            yield label, f"{found['id']}, {time_text(found['trigger_timestamp'])}, {found['external_path']}"
    if failed := latest["failed"]:
        text = (failed["failure_message"] or "no reason given").splitlines()[0]
        yield "Last failed checkpoint", f"{failed['id']}, {time_text(failed['failure_timestamp'])}, {text}"
    if waits := job.get("launch-wait"):
        yield "Start", launch_wait_text(waits)
    for query in job["queries"]:
        yield "Query", f"{query['name']}, last batch {_or_unknown(query['last-batch-id'])}"
    if again := writing_again(job["queries"]):
        yield "Rows doubled by a restore", targets_of(again)
    for failure in shown["exceptions"][:1]:
        yield "Last failure", f"{time_text(failure['timestamp'])}, {failure['exceptionName']}: {failure['message']}"


def _process(attempt: Mapping[str, Any]) -> str:
    """Return the pod or pid of the attempt's driver, or "" before its start."""
    if pod := attempt["pod"]:
        return f"pod {pod}"
    return "" if attempt["pid"] is None else f"pid {attempt['pid']}"


_COUNTS = ("completed", "failed", "in_progress")


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else str(value)
