"""Start everything for `manage.py up`, from a directory and environment variables."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from checkpointing.java import JavaNotFound, find_java
from dashboard.stack.composition import STOP_ORDER, compose
from dashboard.stack.doctor import Level, check_account, check_servers
from dashboard.stack.environment import (
    ADMIN_PASSWORD,
    InvalidEnvironment,
    StackEnvironment,
    build,
    create_var,
    external_parts,
    secret_of,
    var_directory,
)
from dashboard.stack.extras import packages_of_up, require
from dashboard.stack.output import Output
from dashboard.stack.process import ServerFailed
from dashboard.stack.record import AlreadyRunning, StackRecord, store_environment
from dashboard.stack.supervisor import PartFailed, Supervisor

# Nothing can start without these servers. A mail server and an external job manager may start later.
_NEEDED = frozenset({"postgres", "redis", "zookeeper"})
_EXTERNAL_LIMIT_S = 30.0


class CannotStart(RuntimeError):
    """The start failed, and every process is stopped. The message for the terminal says why."""


class ExternalUnreachable(RuntimeError):
    """An external server does not answer. The message names the server, the reason and the remedy."""


def start(*, demo: bool) -> None:
    """Start everything, and return after a signal has stopped it. Raises CannotStart or CommandError."""
    outside = {part.name for part in external_parts(os.environ)}
    require(f"`manage.py up{' --demo' if demo else ''}`", packages_of_up(outside, demo=demo))
    os.umask(0o077)  # child processes inherit the umask
    var = var_directory(os.environ)
    try:
        create_var(var)
        record = StackRecord(var / "run")
        with record.acquire_lock():
            _run(var, record, demo=demo)
    except PermissionError as error:
        raise CannotStart(
            f"{error.filename}: permission denied. If another user started Waymark here before, "
            f"start it as that user, change the owner of {var}, or set WAYMARK_VAR to another directory."
        ) from error
    except OSError as error:
        raise CannotStart(
            f"{error.filename or var}: {error.strerror}. "
            f"Waymark must be able to write to {var}. Free space there, or set WAYMARK_VAR to another directory."
        ) from error
    except (AlreadyRunning, ExternalUnreachable, PartFailed, InvalidEnvironment, JavaNotFound, ServerFailed) as error:
        raise CannotStart(str(error)) from error


def _run(var: Path, record: StackRecord, *, demo: bool) -> None:
    started = time.monotonic()
    with contextlib.closing(Output(var / "log")) as output:
        _supervise(var, record, output, started, demo=demo)


def _supervise(var: Path, record: StackRecord, output: Output, started: float, *, demo: bool) -> None:
    output.report(f"data and logs are in {var}")
    account = check_account(os.geteuid())
    if account.level is Level.WARNING:
        output.report(f"started by {account.text} {account.remedy}")
    record.end_leftovers(output.report)
    java = find_java(os.environ, var / "java")
    output.report(f"Java {java.version} from {java.source}")
    environment = build(os.environ, var, java)
    for part in environment.external:
        output.report(f"{part.name}: external, at {part.address} ({part.variable} is set)")
    wait_for_external(os.environ, output.report)
    store_environment(record.directory, environment.variables)
    supervisor = Supervisor(
        compose(environment, demo=demo),
        external=environment.external,
        stop_order=STOP_ORDER,
        record=record,
        output=output,
        on_up=lambda: _report_started(output, environment, time.monotonic() - started),
    )
    supervisor.run()


def wait_for_external(
    environ: Mapping[str, str], report: Callable[[str], None], *, limit_s: float = _EXTERNAL_LIMIT_S
) -> None:
    """Return once all external servers answer. When a machine boots, they may start later than Waymark.

    Raises:
        ExternalUnreachable: A server does not answer within `limit_s`.
    """
    names = _NEEDED & {part.name for part in external_parts(environ)}
    deadline = time.monotonic() + limit_s
    is_reported = False
    while silent := [each for each in check_servers(environ) if each.subject in names and each.level is Level.PROBLEM]:
        if time.monotonic() >= deadline:
            raise ExternalUnreachable("\n".join(f"{each.subject}: {each.text}\n{each.remedy}" for each in silent))
        if not is_reported:
            report(f"waiting for {', '.join(each.subject for each in silent)} to answer, {limit_s:g} s at most")
            is_reported = True
        time.sleep(1)


def _report_started(output: Output, environment: StackEnvironment, took_s: float) -> None:
    output.report(f"everything is up after {took_s:.0f} s")
    output.report("")
    output.report(f"    Open    {environment.variables['WAYMARK_PUBLIC_URL']}")
    _report_password(output, environment.var)
    output.report("    Stop    with Ctrl-C; the next start continues here")
    output.report("")


def _report_password(output: Output, var: Path) -> None:
    """Print the name of the file with the password. The password itself is printed only to a terminal."""
    password_file = var / "admin-password"
    if secret_of(os.environ, ADMIN_PASSWORD):
        output.report(f"    Log in  as admin, with the password in {ADMIN_PASSWORD}")
    elif password_file.exists():
        output.report(f"    Log in  as admin; the password is in {password_file}, which only this account can read")
        output.show_secret(f"            password {password_file.read_text().strip()}")
    else:
        output.report("    Log in  as admin, with the password you chose")
