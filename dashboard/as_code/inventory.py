"""The inventory file: clusters that a deployment tool writes as YAML, applied when the file or a secret changes.

The file decides only about the clusters that it names: one that is no longer in it is removed, and its history stays.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction

from dashboard.access.roles import Role
from dashboard.as_code.applying import carry_out
from dashboard.as_code.base import Plan
from dashboard.as_code.lines import LONGEST, Problem, Unreadable, read_entries
from dashboard.as_code.plan import plan
from monitoring.models import AppliedText
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason

ACTOR = "inventory"
SECTION = "clusters"
# A file that changed a moment ago may be half-written.
SETTLED = timedelta(seconds=3)


def apply_inventory(now: datetime) -> CycleReport | None:
    """Apply the inventory file of the settings if it has changed. A file with a problem changes nothing."""
    if not settings.INVENTORY:
        return None
    file = Path(settings.INVENTORY)
    try:
        changed_at = _changed_at(file)
        with file.open(encoding="utf-8") as opened:
            text = opened.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        return _refuse(file, [f"Waymark cannot read the file: {error}"])
    if timedelta(0) <= now - changed_at < SETTLED:
        return None
    return _apply(file, text, now)


@transaction.atomic
def _apply(file: Path, text: str, now: datetime) -> CycleReport | None:
    row, _ = AppliedText.objects.select_for_update().get_or_create(source=str(file))
    is_applied = row.applied_at is not None and row.text == text
    if is_applied and not row.problems and not _secrets_changed_since(row.applied_at or now):
        return None
    made = plan(text, Role.ADMIN, only=frozenset({SECTION}))
    if not made.problems and not _has_section(text):
        made.problems.append(Problem(None, f"The file needs the section {SECTION}."))
    if made.problems:
        return _refuse(file, [str(problem) for problem in made.problems])
    _keep_clusters_of_others(made, row.text)
    changes = carry_out(made, ACTOR, now, prune=True)
    row.text, row.applied_at, row.applied_by, row.problems = text, now, ACTOR, []
    row.save()
    return CycleReport((WorkReason.INVENTORY_APPLIED(count=len(changes)),)) if changes else None


def _keep_clusters_of_others(made: Plan, before: str) -> None:
    """Remove only clusters that the file named when it was last applied."""
    named = {f"cluster {entry.values.get('name')}" for entry in read_entries(before, (SECTION,)).get(SECTION, [])}
    made.removals = [step for step in made.removals if step.change.what in named]


def _has_section(text: str) -> bool:
    try:
        return SECTION in read_entries(text, (SECTION,))
    except Unreadable:
        return False


def _changed_at(file: Path) -> datetime:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def _secrets_changed_since(at: datetime) -> bool:
    try:
        files = list(Path(settings.CODE_SECRETS).iterdir()) if settings.CODE_SECRETS else []
        return any(_changed_at(file) > at for file in files)
    except OSError:
        return False


def _refuse(file: Path, problems: list[str]) -> CycleReport:
    AppliedText.objects.update_or_create(source=str(file), defaults={"problems": problems[:100]})
    return CycleReport((WorkReason.INVENTORY_NOT_APPLIED(file=str(file), problem=problems[0]),))
