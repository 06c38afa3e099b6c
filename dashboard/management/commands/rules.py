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
    help = "Export alert rules and channels as YAML, show what an import would change, or import a file."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("export", help="write rules and channels as YAML to standard output")
        for name, text in (
            ("diff", "show what an import would change"),
            ("import", "import a YAML file; an invalid file changes nothing"),
        ):
            action = actions.add_parser(name, help=text)
            action.add_argument("file", help="a YAML file, or - for standard input")
            action.add_argument("--prune", action="store_true", help="remove rules that are not in the file")
            if name == "import":
                action.add_argument("--dry-run", action="store_true", help="show the changes without making them")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["action"] == "export":
            self.stdout.write(export(), ending="")
            return
        text = _read(options["file"])
        if options["action"] == "diff" or options["dry_run"]:
            self._show(_make_plan(text), prune=options["prune"])
            return
        try:
            changes = apply(text, getpass.getuser(), timezone.now(), prune=options["prune"])
        except NotApplied as refused:
            raise CommandError(_refusal(refused.plan)) from None
        self._print_changes(changes, "Nothing changed: rules and channels are already as in the file.")

    def _show(self, made: Plan, *, prune: bool) -> None:
        gone = removable(made)
        self._print_changes(
            [*made.changes, *(Change(f"rule {rule}", "remove") for rule in gone if prune)], "No changes."
        )
        if gone and not prune:
            self.stdout.write(f"Rules that are not in the file and stay: {len(gone)}. To remove them, use --prune.")

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
        raise CommandError(f"Cannot read {file}: {error}") from None


def _make_plan(text: str) -> Plan:
    made = plan(text)
    if made.problems:
        raise CommandError(_refusal(made))
    return made


def _refusal(made: Plan) -> str:
    return "\n".join(["Nothing was changed.", *(str(problem) for problem in made.problems)])
