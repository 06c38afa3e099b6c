"""`manage.py config`: export the configuration as YAML, show the changes that a file would make, or apply it."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from dashboard.access.roles import Role
from dashboard.as_code.applying import NotApplied, apply
from dashboard.as_code.base import Change, Plan
from dashboard.as_code.drift import drifts
from dashboard.as_code.export import export
from dashboard.as_code.plan import plan
from monitoring.models import AppliedText


class Command(BaseCommand):
    help = "Export the configuration as YAML, show what a file would change, apply it, or show the drift since then."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("export", help="write the configuration as YAML to standard output")
        actions.add_parser("drift", help="show what has changed since the last YAML was applied; exits with 1 if so")
        for name, text in (
            ("plan", "show what a YAML file would change, without changes"),
            ("apply", "apply a YAML file; an invalid file changes nothing"),
        ):
            action = actions.add_parser(name, help=text)
            action.add_argument("file", help="a YAML file, or - for standard input")
            action.add_argument("--prune", action="store_true", help="remove what the sections of the file do not have")

    def handle(self, *_args: Any, **options: Any) -> None:
        match options["action"]:
            case "export":
                self.stdout.write(export(Role.ADMIN), ending="")
            case "drift":
                self._drift()
            case "plan":
                self._plan(_read(options["file"]), prune=options["prune"])
            case _:
                self._apply(_read(options["file"]), prune=options["prune"])

    def _apply(self, text: str, *, prune: bool) -> None:
        try:
            changes = apply(text, Role.ADMIN, getpass.getuser(), timezone.now(), prune=prune)
        except NotApplied as refused:
            raise CommandError(_refusal(refused.plan)) from None
        self._print_changes(changes, "Nothing changed: the configuration is already as in the file.")

    def _plan(self, text: str, *, prune: bool) -> None:
        made = plan(text, Role.ADMIN)
        if made.problems:
            raise CommandError(_refusal(made))
        gone = [step.change for step in made.removals]
        self._print_changes([*made.changes, *(gone if prune else [])], "No changes.")
        if gone and not prune:
            self.stdout.write(f"Not in the file and kept: {len(gone)}. To remove them, use --prune.")

    def _drift(self) -> None:
        found = drifts(Role.ADMIN)
        for drift in found:
            self.stdout.write(_applied_text(drift.applied))
            for problem in (*drift.applied.problems, *drift.plan.problems):
                self.stdout.write(f"! {problem}")
            self._print_changes(drift.plan.changes, "No drift.")
            for extra in drift.extra:
                self.stdout.write(f"Not in the YAML: {extra}")
        if not found:
            self.stdout.write("No YAML has been applied yet.")
        if any(drift.plan.changes or drift.plan.problems or drift.applied.problems for drift in found):
            sys.exit(1)

    def _print_changes(self, changes: list[Change], nothing: str) -> None:
        for line in (line for change in changes for line in lines_of(change)):
            self.stdout.write(line)
        if not changes:
            self.stdout.write(nothing)


def _applied_text(applied: AppliedText) -> str:
    where = f" from {applied.source}" if applied.source else ""
    if applied.applied_at is None:
        return f"Not applied yet{where}:"
    return f"Applied by {applied.applied_by} at {applied.applied_at:%Y-%m-%d %H:%M:%S} UTC{where}:"


def lines_of(change: Change) -> list[str]:
    sign = {"add": "+", "change": "~", "remove": "-"}[change.verb]
    before = change.verb == "change"
    return [
        f"{sign} {change.what}",
        *(
            f"    {key}: {f'{value_text(was)} → ' if before else ''}{value_text(will)}"
            for key, (was, will) in change.fields.items()
        ),
    ]


def value_text(value: Any) -> str:
    match value:
        case None | "" | [] | {}:
            return "–"
        case list():
            return ", ".join(value)
        case dict():
            return ", ".join(f"{key}={text}" for key, text in value.items())
    return str(value)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"Cannot read {file}: {error}") from None


def _refusal(made: Plan) -> str:
    return "\n".join(["Nothing was changed.", *(str(problem) for problem in made.problems)])
