"""`manage.py archive`: the history's old partitions as Parquet files."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from checkpointing.storage.errors import StorageError
from monitoring import clock
from monitoring.history.archive import cycle
from monitoring.history.archive.checking import check


class Command(BaseCommand):
    help = "Move what is old enough into the archive (WAYMARK_ARCHIVE), as a task does every ten minutes, or check it."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("advance", help="archive what is due, for about a minute")
        actions.add_parser("check", help="read every file of the archive and compare it with its checksum")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            is_check = options["action"] == "check"
            self.stdout.write(self._checked() if is_check else cycle.advance(clock.now()))
        except (StorageError, OSError) as error:
            raise CommandError(f"The archive cannot be written or read: {error}") from error

    def _checked(self) -> str:
        files, problems = check(clock.now())
        if problems:
            raise CommandError("\n".join([f"{len(problems)} of {files} files cannot be read:", *problems]))
        return f"All {files} files of the archive are what was written."
