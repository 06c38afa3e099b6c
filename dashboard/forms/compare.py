"""The form that selects two checkpoints or two runs of a job for a comparison."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from monitoring.models import Checkpoint, Job, Run

_RUN = re.compile(r"run\s*(\d{1,9})", re.IGNORECASE)
_CHECKPOINT = re.compile(r"(?:(\d{1,9})\s*/\s*)?(\d{1,18})")
_ALLOWED = _("Enter a checkpoint ID (285), a run and a checkpoint ID (2/285), or a run (run 2).")

Side = Checkpoint | Run


class SideField(forms.CharField):
    """A field that converts text to a Checkpoint or Run of the job: `285`, `2/285` or `run 2`.

    A checkpoint ID without a run means the newest run that has a checkpoint with this ID.
    """

    def __init__(self, *, label: Any) -> None:
        super().__init__(label=label, max_length=40, error_messages={"required": _ALLOWED})
        self.widget.attrs |= {"autocomplete": "off", "spellcheck": "false", "placeholder": "285, 2/285 or run 2"}
        self.job: Job | None = None

    def clean(self, value: Any) -> Side:
        text = str(super().clean(value)).strip()
        if run := _RUN.fullmatch(text):
            return self._run(int(run[1]))
        if checkpoint := _CHECKPOINT.fullmatch(text):
            return self._checkpoint(checkpoint[1], int(checkpoint[2]))
        raise ValidationError(
            _("“%(text)s” is neither a checkpoint nor a run. %(allowed)s"),
            code="side",
            params={"text": text, "allowed": _ALLOWED},
        )

    def _run(self, number: int) -> Run:
        found = Run.objects.filter(job=self.job, number=number).first()
        if found is None:
            raise ValidationError(_("This job has no run %(number)s."), code="none", params={"number": number})
        return found

    def _checkpoint(self, run: str | None, number: int) -> Checkpoint:
        found = Checkpoint.objects.filter(run__job=self.job, checkpoint_id=number).select_related("run")
        found = found.filter(run__number=int(run)) if run else found
        newest = found.order_by("-run__number").first()
        if newest is None:
            missing = (
                _("This job has no checkpoint %(number)s in run %(run)s.")
                if run
                else _("This job has no checkpoint %(number)s.")
            )
            raise ValidationError(missing, code="none", params={"number": number, "run": run})
        return newest


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
            self.add_error("b", _("Compare a checkpoint with a checkpoint, or a run with a run."))
        return cleaned
