from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from dashboard.stack.extras import MAIL_SINK, require
from dashboard.stack.ports import LOOPBACK


class Command(BaseCommand):
    help = (
        "Receive mail on loopback and store it below the var directory, for machines without a mail server. "
        "If EMAIL_URL has a user name and password, senders must log in with them."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8025)

    def handle(self, *args: Any, port: int, **options: Any) -> None:
        require("`manage.py mailsink`", [MAIL_SINK])
        from dashboard.stack.mailsink import LogIn, serve

        user = settings.EMAIL_HOST_USER
        log_in = LogIn(user, settings.EMAIL_HOST_PASSWORD) if user else None
        asyncio.run(serve(LOOPBACK, port, settings.VAR_DIR / "mail", log_in))
