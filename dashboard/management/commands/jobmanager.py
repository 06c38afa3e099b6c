"""`manage.py jobmanager`: run the job manager for PySpark jobs in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from checkpointing.ha.errors import HighAvailabilityError
from checkpointing.jobs.settings import InvalidSettings, JobManagerSettings
from dashboard.stack.extras import JOBMANAGER, require

VARIABLES = """\
Settings come from the environment (NAME_FILE reads NAME from a file):
  WAYMARK_JOBMANAGER_HOST          address to listen on (127.0.0.1)
  WAYMARK_JOBMANAGER_PORT          port, 0 for any free one (8081)
  WAYMARK_JOBMANAGER_ADDRESS       URL for drivers and people, http://host:port (host and port above)
  WAYMARK_JOBMANAGER_TOKEN         bearer token that every request must send (none)
  WAYMARK_JOBMANAGER_STATE         programs and job directories, shared by all job managers ($WAYMARK_VAR/jobmanager)
  WAYMARK_CHECKPOINT_DIR           checkpoints: a path, or a URL such as s3://… (<state>/checkpoints)
  WAYMARK_SAVEPOINT_DIR            savepoints: a path or URL (<state>/savepoints)
  WAYMARK_SAVEPOINT_ROOTS          more directories for savepoints, separated by commas (none)
  WAYMARK_HIGH_AVAILABILITY        NONE or ZOOKEEPER (ZOOKEEPER if ZOOKEEPER_HOSTS is set)
  ZOOKEEPER_HOSTS                  host:port,host:port
  WAYMARK_ZOOKEEPER_ROOT           root node (/waymark)
  WAYMARK_CLUSTER_ID               node below it, one per cluster (default)
  WAYMARK_ZOOKEEPER_SESSION_TIMEOUT  seconds (10)
  WAYMARK_HEARTBEAT_INTERVAL       seconds between a driver's heartbeats (2)
  WAYMARK_HEARTBEAT_TIMEOUT        seconds without a heartbeat until a driver is lost (20)
  WAYMARK_REGISTRATION_TIMEOUT     seconds in which a new driver must register (120)
  WAYMARK_RECONCILE_WINDOW         seconds in which a driver must register with a new leader (15)
  WAYMARK_CANCEL_TIMEOUT           seconds in which a driver must end when it is canceled (30)
  WAYMARK_STORAGE_TIMEOUT          seconds without progress until a read from storage is abandoned (40)
  WAYMARK_DRIVERS_ON_SHUTDOWN      stop: end the drivers; leave: leave them for the next job manager (stop)
  WAYMARK_CHECKPOINT_HISTORY       checkpoints shown per job (10)
  WAYMARK_COMPLETED_JOBS           ended jobs shown (50)
  WAYMARK_MAX_UPLOAD_BYTES         largest program (104857600)
"""


class Command(BaseCommand):
    help = "Run the job manager: Flink's REST API for PySpark Structured Streaming jobs."
    requires_system_checks = []  # noqa: RUF012  (Django's own form)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = VARIABLES

    def handle(self, *args: Any, **options: Any) -> None:
        require("`manage.py jobmanager`", JOBMANAGER.packages)
        from checkpointing.main import CannotServe, run

        try:
            settings = JobManagerSettings.from_environ(os.environ)
            asyncio.run(run(settings, say=self._print))
        except (InvalidSettings, CannotServe, HighAvailabilityError) as error:
            raise CommandError(str(error)) from error

    def _print(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
