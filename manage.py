#!/usr/bin/env python
"""One door for every command: up, status, doctor, jobmanager, submit, and Django's own."""

import os
import sys


def main() -> None:
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
    try:
        execute_from_command_line(sys.argv)
    except (EnvError, ImproperlyConfigured) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # while it imports, which takes seconds on a slow machine; `up` has its own way to stop
        sys.exit(130)
