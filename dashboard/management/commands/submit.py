"""`manage.py submit`: upload a program, run it, and see it start."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import BaseCommand, CommandError

from checkpointing.rest.client import JobManagerClient, JobManagerUnreachable, RequestRefused
from checkpointing.rest.submission import JobDidNotStart, Submission, follow_until_running
from dashboard.stack.environment import JOBMANAGER_TOKEN, OWN_TOKEN, var_directory

DEFAULT_ADDRESS = "http://127.0.0.1:8081"
EPILOG = """\
example:
  manage.py submit wordcount.py:wordcount --arg input=/data/in --conf execution.checkpointing.interval=10s

The exit code is 0 once the job runs, 1 when it was refused or failed to start. The token comes from
WAYMARK_JOBMANAGER_TOKEN or WAYMARK_JOBMANAGER_TOKEN_FILE; without them, the job manager that `up` runs gets its own.
"""


class Command(BaseCommand):
    help = "Submit a PySpark program to the job manager and wait until it runs."
    requires_system_checks = []  # noqa: RUF012  (Django's own form)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = EPILOG
        parser.add_argument("program", metavar="PROGRAM.py:FUNCTION", help="or PROGRAM.zip:MODULE:FUNCTION")
        parser.add_argument("--name", help="the job's name (default: pipeline.name or the function's)")
        parser.add_argument(
            "--arg", action="append", default=[], metavar="KEY=VALUE", help="an entry of the program's args"
        )
        parser.add_argument(
            "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Flink or spark.* setting"
        )
        parser.add_argument("--parallelism", type=int)
        parser.add_argument(
            "--from-savepoint",
            metavar="LOCATION",
            help="a savepoint or retained checkpoint to start from: a path, or an address such as s3://…",
        )
        parser.add_argument("--allow-non-restored-state", action="store_true")
        known = os.environ.get("WAYMARK_JOBMANAGER_URL") or os.environ.get("WAYMARK_EMBEDDED_CLUSTER_URL")
        parser.add_argument("--jobmanager", metavar="URL", default=known or DEFAULT_ADDRESS)
        parser.add_argument("--timeout", type=float, default=300.0, help="seconds to wait until it runs (300)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            submission = _submission(options)
            client = JobManagerClient(options["jobmanager"], _token(options["jobmanager"]))
            jar_id = client.upload(submission.program)
            self.stdout.write(f"Uploaded {submission.program.name}.")
            job_id = client.run(jar_id, submission.request())
            self.stdout.write(f"Submitted: job {job_id}")
            follow_until_running(client, job_id, self.stdout.write, time.monotonic, time.sleep, options["timeout"])
        except OSError as error:
            raise CommandError(f"{error.filename or options['program']}: {error.strerror or error}") from error
        except JobDidNotStart as error:
            if error.stack:
                self.stderr.write(error.stack)
            raise CommandError(str(error)) from error
        except (ValueError, JobManagerUnreachable, RequestRefused) as error:
            raise CommandError(str(error)) from error


def _submission(options: dict[str, Any]) -> Submission:
    return Submission.parse(
        options["program"],
        name=options["name"],
        arguments=options["arg"],
        settings=options["conf"],
        parallelism=options["parallelism"],
        savepoint=options["from_savepoint"],
        allow_non_restored_state=options["allow_non_restored_state"],
    )


def _token(address: str) -> str | None:
    """Return the token for `address`. The one that `up` made is sent to its own job manager only."""
    file = os.environ.get(f"{JOBMANAGER_TOKEN}_FILE")
    if os.environ.get(JOBMANAGER_TOKEN) or not file:
        return os.environ.get(JOBMANAGER_TOKEN)
    if Path(file) == var_directory(os.environ) / OWN_TOKEN and not _is_embedded(address):
        return None
    return Path(file).read_text().strip()


def _is_embedded(address: str) -> bool:
    embedded = urlsplit(os.environ.get("WAYMARK_EMBEDDED_CLUSTER_URL", ""))
    given = urlsplit(address)
    return given.port == embedded.port and {given.hostname, embedded.hostname} <= {"127.0.0.1", "localhost", "::1"}
