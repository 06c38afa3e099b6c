from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dashboard.stack.start import CannotStart, start


class Command(BaseCommand):
    help = "Start all parts of Waymark on this machine under one supervisor. Ctrl-C or SIGTERM stops them cleanly."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--demo", action="store_true", help="also run two demo jobs on real flight data")

    def handle(self, *args: Any, demo: bool, **options: Any) -> None:
        try:
            start(demo=demo)
        except CannotStart as error:
            raise CommandError(str(error)) from error
