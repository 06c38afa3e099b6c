"""`manage.py archive`: the history's old partitions as Parquet files."""

from __future__ import annotations

import argparse
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from checkpointing.storage.errors import StorageError
from checkpointing.storage.locations import canonical
from monitoring import clock
from monitoring.history.archive import cycle
from monitoring.history.archive.adopting import adopt
from monitoring.history.archive.checking import check
from monitoring.history.archive.offered import Unfit


class Command(BaseCommand):
    help = (
        "Move what is old enough into the archive (WAYMARK_ARCHIVE), as a task does every ten minutes, check it,"
        " or take up another one."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("advance", help="archive what is due, for about a minute")
        actions.add_parser("check", help="read every file of the archive and compare it with its checksum")

        adopt = actions.add_parser(
            "adopt", help="take up an archive whose database was lost, or that of another installation"
        )
        adopt.add_argument("location", nargs="?", help="where it lies; WAYMARK_ARCHIVE itself when left out")
        adopt.add_argument("--dry-run", action="store_true", help="read and judge every file, and take up none")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            match options["action"]:
                case "advance":
                    self.stdout.write(cycle.advance(clock.now()))
                case "check":
                    self.stdout.write(self._checked())
                case _:
                    self._adopt(canonical(options["location"] or settings.ARCHIVE), only_look=options["dry_run"])
        except (StorageError, OSError) as error:
            raise CommandError(f"The archive cannot be written or read: {error}") from error

    def _checked(self) -> str:
        files, problems = check(clock.now())
        if problems:
            raise CommandError("\n".join([f"{len(problems)} of {files} files cannot be read:", *problems]))
        return f"All {files} files of the archive are what was written."

    def _adopt(self, source: str, *, only_look: bool) -> None:
        with cycle.alone() as is_alone:
            if not is_alone:
                raise CommandError("Another process works on the archive. Try again when it has done.")
            try:
                outcome = adopt(source, clock.now(), only_look=only_look)
            except Unfit as why:
                raise CommandError(str(why)) from why
        for line in outcome.told:
            self.stdout.write(line)
        if outcome.refused:
            raise CommandError("\n".join([f"{len(outcome.refused)} refused:", *outcome.refused]))
