"""Real servers for remote snapshots on this machine: S3 (an object store) and FTP (directories and renames)."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3

from tests.waiting import LIMIT_S

_POLICY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'


@dataclass(frozen=True)
class StorageServer:
    """A storage server. `root` is an empty location on it, and `environment` has the variables for access."""

    root: str
    environment: dict[str, str]
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def s3_server(directory: Path) -> Iterator[StorageServer]:
    """Start an S3 server that checks signatures. Like Amazon's, it refuses wrong or missing keys."""
    free_requests = {"INITIAL_NO_AUTH_ACTION_COUNT": "3", "PYTHONUNBUFFERED": "1"}
    command = ["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with _running(command, directory / "s3.log", r"Running on (http://127\.0\.0\.1:\d+)", free_requests) as started:
        process, address = started
        environment = {
            "AWS_ENDPOINT_URL": address,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            **_s3_user(address),
        }
        client = boto3.client("s3", **_boto(environment))
        # Use a unique name, because a process caches its connection by location, and would use another test's server.
        bucket = f"snapshots-{uuid.uuid4().hex[:8]}"
        client.create_bucket(Bucket=bucket)
        client.close()
        yield StorageServer(f"s3://{bucket}", environment, process)


def _s3_user(address: str) -> dict[str, str]:
    """Create a user with a key, using the three requests that the server accepts without a key."""
    nobody = {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "-", "AWS_SECRET_ACCESS_KEY": "-"}
    client = boto3.client("iam", **_boto(nobody))
    client.create_user(UserName="waymark")
    client.put_user_policy(UserName="waymark", PolicyName="s3", PolicyDocument=_POLICY)
    key = client.create_access_key(UserName="waymark")["AccessKey"]
    client.close()
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


def _boto(environment: dict[str, str]) -> dict[str, str]:
    return {
        "endpoint_url": environment["AWS_ENDPOINT_URL"],
        "region_name": "us-east-1",
        "aws_access_key_id": environment["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": environment["AWS_SECRET_ACCESS_KEY"],
    }


@contextlib.contextmanager
def ftp_server(directory: Path) -> Iterator[StorageServer]:
    served = directory / "ftp"
    served.mkdir()
    command = [
        "-m",
        "pyftpdlib",
        "-i",
        "127.0.0.1",
        "-p",
        "0",
        "-w",
        "-d",
        str(served),
        "-u",
        "waymark",
        "-P",
        "secret",
    ]
    with _running(command, directory / "ftp.log", r"starting FTP server on 127\.0\.0\.1:(\d+)", {}) as (process, port):
        environment = {"FSSPEC_FTP_USERNAME": "waymark", "FSSPEC_FTP_PASSWORD": "secret"}
        yield StorageServer(f"ftp://127.0.0.1:{port}", environment, process)


@contextlib.contextmanager
def _running(
    command: list[str], log: Path, ready: str, environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Yield the process, and the text that the group in `ready` matched in its log."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
    try:
        yield process, _found(ready, log, process)
    finally:
        process.kill()
        process.wait(LIMIT_S)


def _found(pattern: str, log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        match = re.search(pattern, log.read_text())
        if match is not None:
            return match[1]
        time.sleep(0.02)
    raise AssertionError(f"the server is not ready: {log.read_text()}")
