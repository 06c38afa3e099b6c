"""The form that selects two checkpoints, two runs or two time ranges of a job for a comparison."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from dashboard.queries.comparison import Side
from dashboard.queries.history import unreadable_text
from dashboard.queries.series import Span
from monitoring.history import rows
from monitoring.models import Checkpoint, Job, Run

_RUN = re.compile(r"run\s*(\d{1,9})", re.IGNORECASE)
_CHECKPOINT = re.compile(r"(?:(\d{1,9})\s*/\s*)?(\d{1,18})")
_ALLOWED = _(
    "Enter a checkpoint ID (285), a run and a checkpoint ID (2/285), a run (run 2), or a time range "
    "(2026-11-21 22:00/2026-11-21 23:00)."
)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


class SideField(forms.CharField):
    """A field that converts text to a Checkpoint, Run or Span of the job: `285`, `2/285`, `run 2` or two times.

    A checkpoint ID without a run means the newest run that has a checkpoint with this ID.
    """

    def __init__(self, *, label: Any) -> None:
        super().__init__(label=label, max_length=80, error_messages={"required": _ALLOWED})
        self.widget.attrs |= {"autocomplete": "off", "spellcheck": "false", "placeholder": "285, 2/285 or run 2"}
        self.job: Job | None = None

    def clean(self, value: Any) -> Side:
        text = str(super().clean(value)).strip()
        if run := _RUN.fullmatch(text):
            return self._run(int(run[1]))
        if ":" in text and "/" in text:
            return _span(text)
        if checkpoint := _CHECKPOINT.fullmatch(text):
            return self._checkpoint(checkpoint[1], int(checkpoint[2]))
        raise ValidationError(
            _("“%(text)s” is no checkpoint, run or time range. %(allowed)s"),
            code="side",
            params={"text": text, "allowed": _ALLOWED},
        )

    def _run(self, number: int) -> Run:
        found = Run.objects.filter(job=self.job, number=number).first()
        if found is None:
            raise ValidationError(_("This job has no run %(number)s."), code="none", params={"number": number})
        return found

    def _checkpoint(self, run: str | None, number: int) -> Checkpoint:
        assert self.job is not None  # noqa: S101 - CompareForm sets it
        of_run = [rows.Wish("number", "=", int(run))] if run else []
        found = rows.page(self.job, [rows.Wish("checkpoint_id", "=", number), *of_run], limit=1)
        if found.checkpoints:
            return found.checkpoints[0]
        if found.unreadable:
            raise ValidationError(unreadable_text(found.unreadable[0]), code="archive")
        missing = (
            _("This job has no checkpoint %(number)s in run %(run)s.")
            if run
            else _("This job has no checkpoint %(number)s.")
        )
        raise ValidationError(missing, code="none", params={"number": number, "run": run})


def _span(text: str) -> Span:
    """Return the time between two times, which are in the reader's time zone if they have none."""
    start, end = (_moment(each.strip()) for each in text.split("/", maxsplit=1))
    if start is None or end is None:
        raise ValidationError(_ALLOWED, code="side")
    span = Span(max(start, _EARLIEST), min(end, timezone.now()))
    if span.start >= span.end:
        raise ValidationError(_("The end must be later than the start, and the start must be past."), code="side")
    return span


def _moment(text: str) -> datetime | None:
    try:
        at = parse_datetime(text)
        return None if at is None else (at if timezone.is_aware(at) else timezone.make_aware(at)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


class CompareForm(forms.Form):
    a = SideField(label=_("From"))
    b = SideField(label=_("To"))

    def __init__(self, job: Job, *args: Any, **options: Any) -> None:
        super().__init__(*args, **({"label_suffix": ""} | options))
        for name in ("a", "b"):
            field = self.fields[name]
            assert isinstance(field, SideField)  # noqa: S101 - for the type checker
            field.job = job

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        sides = [type(cleaned[name]) for name in ("a", "b") if name in cleaned]
        if len(set(sides)) > 1:
            self.add_error("b", _("Compare two checkpoints, two runs or two time ranges."))
        return cleaned
