from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dashboard.management.tables import table_lines
from dashboard.stack.environment import external_parts, var_directory
from dashboard.stack.parts import PartState
from dashboard.stack.record import KNOWN_PARTS, PartRecord, StackRecord


class Command(BaseCommand):
    help = "List the parts of Waymark with their state, address, pid and version."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help='print {"parts": [{"name", "state", …}]}')

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            parts = parts_now(os.environ)
        except PermissionError as error:
            raise CommandError(f"{error.filename}: no permission. Waymark runs here as another user.") from error
        if options["json"]:
            rows = [
                {
                    "name": part.name,
                    "state": part.state,
                    "address": part.address or None,
                    "pid": part.pid,
                    "version": part.version or None,
                    "restarts": part.restarts,
                }
                for part in parts
            ]
            self.stdout.write(json.dumps({"parts": rows}, indent=2))
            return
        table = [("PART", "STATE", "PID", "VERSION", "ADDRESS")]
        table += [
            (part.name, part.state, str(part.pid or "–"), part.version or "–", part.address or "–") for part in parts
        ]
        for line in table_lines(table):
            self.stdout.write(line)


def parts_now(environ: Mapping[str, str]) -> list[PartRecord]:
    """Return every part, the known parts first. A part that was never started is down or external."""
    found = {part.name: part for part in StackRecord(var_directory(environ) / "run").read()}
    outside = {part.name: part for part in external_parts(environ)}
    for name in KNOWN_PARTS:
        if name not in found:
            state = PartState.EXTERNAL if name in outside else PartState.DOWN
            found[name] = PartRecord(name, state.value, outside[name].address if name in outside else "")
    order = {name: position for position, name in enumerate(KNOWN_PARTS)}
    return sorted(found.values(), key=lambda part: (order.get(part.name, len(order)), part.name))
