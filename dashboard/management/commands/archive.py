"""`manage.py archive`: move old partitions of the history to Parquet files, or check these files."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from checkpointing.java import JavaNotFound
from checkpointing.storage.errors import StorageError
from dashboard.stack.extras import JOBMANAGER, require
from monitoring import clock
from monitoring.history.archive import cycle
from monitoring.history.archive.cycle import check
from monitoring.reasons.archive import ArchiveReason


class Command(BaseCommand):
    help = "Move old history to the archive (WAYMARK_ARCHIVE), as a task does every ten minutes, or check the archive."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        advance = actions.add_parser("advance", help="archive the partitions that are old enough, for about a minute")
        advance.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
        actions.add_parser("operators", help="compute roll-ups of operators of days that Waymark 0.2 archived")
        actions.add_parser("check", help="compare every file of the archive with its checksum")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            match options["action"]:
                case "check":
                    self.stdout.write(self._checked())
                case "operators":
                    self.stdout.write(self._with_operators())
                case _:
                    self.stdout.write(self._advanced(options["json"]))
        except (StorageError, OSError, JavaNotFound) as error:
            reason = ArchiveReason.UNUSABLE(problem=str(error))
            if options.get("json"):  # the periodic task reads the reason
                self.stdout.write(json.dumps(reason.as_json()))
                raise SystemExit(1) from error
            raise CommandError(str(reason)) from error

    def _advanced(self, as_json: bool) -> str:
        require("manage.py archive advance", JOBMANAGER.packages)
        report = cycle.advance(clock.now())
        return json.dumps(report.as_json()) if as_json else str(report)

    def _with_operators(self) -> str:
        require("manage.py archive operators", JOBMANAGER.packages)
        try:
            added, problems = cycle.add_operators()
        except cycle.ArchivingElsewhere as error:
            raise CommandError(str(error)) from error
        if problems:
            raise CommandError("\n".join([f"{added:,} roll-ups were computed. Some are missing:", *problems]))
        return f"{added:,} roll-ups of operators were computed."

    def _checked(self) -> str:
        files, problems = check(clock.now())
        if problems:
            raise CommandError("\n".join([f"{len(problems)} of {files} files cannot be read:", *problems]))
        return f"All {files} files of the archive are what was written."
