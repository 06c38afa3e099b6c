from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dashboard.stack.doctor import Level, examine

_MARKS = {Level.GOOD: "ok     ", Level.WARNING: "warning", Level.PROBLEM: "PROBLEM"}


class Command(BaseCommand):
    help = "Check this machine (packages, Java, servers, ports, disk, memory), and report problems and how to fix them."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        findings = examine(os.environ)
        styles: dict[Level, Callable[[str], str]] = {
            Level.GOOD: str,
            Level.WARNING: self.style.WARNING,
            Level.PROBLEM: self.style.ERROR,
        }
        for finding in findings:
            self.stdout.write(f"{styles[finding.level](_MARKS[finding.level])}  {finding.subject}: {finding.text}")
            if finding.remedy:
                self.stdout.write(f"         → {finding.remedy}")
        problems = sum(finding.level is Level.PROBLEM for finding in findings)
        if problems:
            raise CommandError(f"Found {problems} {'problem' if problems == 1 else 'problems'}.", returncode=1)
        self.stdout.write("Found no problems.")
