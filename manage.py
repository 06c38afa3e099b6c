#!/usr/bin/env python
"""The entry point of every command: up, status, doctor, jobmanager, submit, job, and Django's own."""

import os
import signal
import sys


def leave(*_: object) -> None:
    """End without an exception. During an import, Python would print the exception and continue."""
    os._exit(130)


def main() -> None:
    signal.signal(signal.SIGINT, leave)  # imports take seconds on a slow machine, and nothing runs yet
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from environs import EnvError

        from dashboard.stack.environment import var_directory
        from dashboard.stack.record import adopt_environment
    except ImportError as error:
        sys.exit(f"{error}. Waymark is not installed here: run `make run`, or pip install -r requirements.txt first.")
    # While `up` runs, every command works on its servers; a variable that is set wins.
    adopt_environment(os.environ, var_directory(os.environ) / "run")
    if sys.argv[1:2] != ["up"]:  # `up` handles Ctrl-C itself
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        execute_from_command_line(sys.argv)
    except (EnvError, ImproperlyConfigured) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
