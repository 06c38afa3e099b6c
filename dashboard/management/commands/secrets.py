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
        actions.add_parser("new-key", help="print a new key; put it before the old keys in WAYMARK_SECRET_KEYS")
        actions.add_parser(
            "rekey", help="encrypt all secrets with the first key; keep the old keys until it has succeeded"
        )
        actions.add_parser("check", help="list the stored secrets that no configured key can decrypt")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["action"]:
            case "new-key":
                self.stdout.write(new_key())
            case "rekey":
                self._rekey()
            case _:
                self._report_unreadable(
                    rekeying.unreadable_secrets(), "The configured keys can decrypt all stored secrets."
                )

    def _rekey(self) -> None:
        done = rekeying.rekey()
        record("manage.py", "secrets.rekey", "secrets", sealed=done.sealed, unreadable=len(done.unreadable))
        self._report_unreadable(
            done.unreadable, f"Secrets encrypted with the first key: {done.sealed}. You can remove the older keys."
        )

    def _report_unreadable(self, unreadable: list[str] | tuple[str, ...], good: str) -> None:
        if unreadable:
            raise CommandError(
                "No configured key can decrypt these secrets. They were not changed. Add their old key to "
                "WAYMARK_SECRET_KEYS, or enter the secrets again:\n" + "\n".join(unreadable)
            )
        self.stdout.write(good)
