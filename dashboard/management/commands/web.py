"""`manage.py web`: run the web server of the dashboard in the foreground."""

from __future__ import annotations

import argparse
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from dashboard.web_server import MEBIBYTE, serve


class Command(BaseCommand):
    help = "Serve the dashboard and its API until SIGTERM."
    requires_system_checks = []  # noqa: RUF012  (Django's own form)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
        parser.add_argument("--port", type=int, default=8000, help="the port to listen on (8000)")
        parser.add_argument("--threads", type=_threads, default=12, help="maximum number of concurrent requests (12)")

    def handle(self, *args: Any, **options: Any) -> None:
        from dashboard.wsgi import application  # this import loads all code

        host, port = options["host"], options["port"]
        largest = (settings.WAYMARK_MAX_PROGRAM_MB + 1) * MEBIBYTE
        try:
            serve(application, host=host, port=port, threads=options["threads"], largest_body=largest)
        except OSError as error:
            raise CommandError(f"--host {host} --port {port}: cannot listen there: {error.strerror}") from error


def _threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 500:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; a whole number from 1 to 500")
    return int(text)
