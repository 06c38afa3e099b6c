"""Find the job manager and its token for commands."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path
from urllib.parse import urlsplit

from checkpointing.rest.client import JobManagerClient
from dashboard.stack.environment import JOBMANAGER_TOKEN, OWN_TOKEN, var_directory

DEFAULT_ADDRESS = "http://127.0.0.1:8081"
ACCESS_HELP = """\
The token comes from WAYMARK_JOBMANAGER_TOKEN or WAYMARK_JOBMANAGER_TOKEN_FILE. If neither is set, the job manager that
`up` runs gets the token that `up` created.
"""
WAIT_HELP = "wait until the job has ended; the exit code is 0 if it is FINISHED"


def add_job_manager_option(parser: ArgumentParser) -> None:
    known = os.environ.get("WAYMARK_JOBMANAGER_URL") or os.environ.get("WAYMARK_EMBEDDED_CLUSTER_URL")
    address = known or DEFAULT_ADDRESS
    parser.add_argument(
        "-m", "--jobmanager", metavar="URL", default=address, help=f"the URL of the job manager ({address})"
    )


def job_manager_client(address: str) -> JobManagerClient:
    """Return a client for the job manager at `address`.

    Raises:
        OSError: The file with the token cannot be read.
        ValueError: The address is invalid.
    """
    return JobManagerClient(address, _token(address))


def _token(address: str) -> str | None:
    """Return the token for `address`. The token that `up` created is sent only to the embedded job manager."""
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
