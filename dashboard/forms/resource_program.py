"""The program of a job that the Flink operator runs, as its resource says, and its change."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from dashboard.forms.launch import StartForm, lines_of
from dashboard.language import rendered
from monitoring.kubernetes.job_program import KIND, ProgramChange, Record, fields_of
from monitoring.kubernetes.job_resources import JobResource
from monitoring.masking import shown_launch, unmasked_launch
from monitoring.models import AuditEntry, Job
from monitoring.reasons.refusals import reason_of
from monitoring.recovery.stages.through_operator import CHANGED_WITHIN

_LONGEST = 1000


class ResourceProgramForm(StartForm):
    """`program` is what the resource says now. After validation, `change` is the change that was typed."""

    image = forms.CharField(required=False, max_length=_LONGEST, label=_("Image"))
    jar_uri = forms.CharField(
        required=False,
        max_length=2000,
        label=_("Jar"),
        help_text=_("Its address, such as local:///opt/flink/usrlib/job.jar for a jar in the image."),
    )

    FIXED: ClassVar[tuple[str, ...]] = ("image", "jar_uri", "entry_class", "program_args")

    def __init__(self, *args: Any, job: Job, resource: JobResource, program: Record, **options: Any) -> None:
        self._program, self._resource = program, resource
        masked = shown_launch(program)
        initial = {**masked, "program_args": "\n".join(masked["program_args"])}
        super().__init__(*args, job=job, initial=initial, **options)
        if "image" not in fields_of(resource):
            del self.fields["image"]
        self.fields["entry_class"].help_text = _("The main class of the jar. Empty: the class in its manifest.")
        self.fields["parallelism"].help_text = _("Empty: the default of the cluster.")
        self.fields["goes_back"].label = _(
            "If the new job fails or is not deployed within %(minutes)d minutes, change the resource back and use "
            "the same snapshot"
        ) % {"minutes": CHANGED_WITHIN.total_seconds() // 60}
        self.change: ProgramChange | None = None

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.none()  # Kubernetes knows who has changed the resource

    def stored_values(self) -> dict[str, object]:
        return {name: self._program[name] for name in fields_of(self._resource)}

    def clean_image(self) -> str:
        return self._without_spaces("image")

    def clean_jar_uri(self) -> str:
        return self._without_spaces("jar_uri")

    def clean_entry_class(self) -> str:
        return self._without_spaces("entry_class")

    def _without_spaces(self, name: str) -> str:
        value = str(self.cleaned_data[name]).strip()
        if value and (not value.isprintable() or " " in value):
            raise forms.ValidationError(_("%(value)r: a value without spaces is needed.") % {"value": value[:100]})
        return value

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        typed = {name: cleaned[name] for name in self.fields if name in self._program}
        typed["program_args"] = lines_of(cleaned["program_args"])
        try:
            now = unmasked_launch({**self._program, **typed, "kind": KIND}, self._program)
        except ValueError as problem:
            self.add_error("program_args", _("%(problem)s.") % {"problem": rendered(reason_of(problem))})
            return cleaned
        change = ProgramChange(self._program, now)
        if not change.fields:
            self.add_error(None, _("Nothing is changed. To only restart the job, use its restart page."))
        self.change = change
        return cleaned
