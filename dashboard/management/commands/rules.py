"""`manage.py rules`: export rules and channels as YAML, show the changes of a file, or import it."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from dashboard.as_code.export import export
from dashboard.as_code.importing import NotApplied, apply, removable
from dashboard.as_code.plan import Change, Plan, plan


class Command(BaseCommand):
    help = "Export rules and channels as YAML, show the changes of a file, or import a file completely or not at all."

    def add_arguments(self, parser: CommandParser) -> None:
        doors = parser.add_subparsers(dest="door", required=True)
        doors.add_parser("export", help="write rules and channels as YAML to standard output")
        for name, text in (("diff", "show the changes of an import"), ("import", "import a YAML file")):
            door = doors.add_parser(name, help=text)
            door.add_argument("file", help="a YAML file, or - for standard input")
            door.add_argument("--prune", action="store_true", help="remove rules that are not in the file")
            if name == "import":
                door.add_argument("--dry-run", action="store_true", help="only show the changes")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["door"] == "export":
            self.stdout.write(export(), ending="")
            return
        text = _read(options["file"])
        if options["door"] == "diff" or options["dry_run"]:
            self._show(_make_plan(text), prune=options["prune"])
            return
        try:
            changes = apply(text, getpass.getuser(), timezone.now(), prune=options["prune"])
        except NotApplied as refused:
            raise CommandError(_refusal(refused.plan)) from None
        self._print_changes(changes, "Nothing to change: the file says what is there.")

    def _show(self, made: Plan, *, prune: bool) -> None:
        gone = removable(made)
        self._print_changes(
            [*made.changes, *(Change(f"rule {rule}", "remove") for rule in gone if prune)], "No change."
        )
        if gone and not prune:
            self.stdout.write(f"Not in the file, and left as they are: {len(gone)} rules (--prune removes them).")

    def _print_changes(self, changes: list[Change], nothing: str) -> None:
        for line in (line for change in changes for line in lines_of(change)):
            self.stdout.write(line)
        if not changes:
            self.stdout.write(nothing)


def lines_of(change: Change) -> list[str]:
    sign = {"add": "+", "change": "~", "remove": "-"}[change.verb]
    before = change.verb == "change"
    return [
        f"{sign} {change.what}",
        *(
            f"    {key}: {f'{_value_text(was)} → ' if before else ''}{_value_text(will)}"
            for key, (was, will) in change.fields.items()
        ),
    ]


def _value_text(value: Any) -> str:
    return "–" if value in (None, "", []) else ", ".join(value) if isinstance(value, list) else str(value)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from None


def _make_plan(text: str) -> Plan:
    made = plan(text)
    if made.problems:
        raise CommandError(_refusal(made))
    return made


def _refusal(made: Plan) -> str:
    return "\n".join(["Nothing was changed.", *(str(problem) for problem in made.problems)])
