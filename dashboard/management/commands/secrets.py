"""`manage.py secrets`: manage the keys that encrypt tokens, passwords and signing secrets in the database."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from monitoring import rekeying
from monitoring.audit import record
from monitoring.secret import new_key


class Command(BaseCommand):
    help = "Create a key for WAYMARK_SECRET_KEYS, encrypt all stored secrets with a new key, or check them."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("new-key", help="print a new key; put it first in WAYMARK_SECRET_KEYS, before the old keys")
        actions.add_parser(
            "rekey", help="encrypt all secrets with the first key; until this is done, the old keys are required"
        )
        actions.add_parser("check", help="list the stored secrets that no configured key decrypts")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["action"]:
            case "new-key":
                self.stdout.write(new_key())
            case "rekey":
                self._rekey()
            case _:
                self._report_unreadable(rekeying.unreadable_secrets(), "Every stored secret can be opened.")

    def _rekey(self) -> None:
        done = rekeying.rekey()
        record("manage.py", "secrets.rekey", "secrets", sealed=done.sealed, unreadable=len(done.unreadable))
        self._report_unreadable(
            done.unreadable, f"{done.sealed} sealed under the first key; older keys are needed no more."
        )

    def _report_unreadable(self, unreadable: list[str] | tuple[str, ...], good: str) -> None:
        if unreadable:
            raise CommandError("Some stored secrets cannot be opened and were left alone:\n" + "\n".join(unreadable))
        self.stdout.write(good)
