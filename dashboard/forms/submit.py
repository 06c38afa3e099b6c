"""The form of a new job: its program, its launch record and the snapshot from which it starts."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from checkpointing.jobs.known_keys import check_keys
from checkpointing.rest.submission import locations_by_query
from checkpointing.storage.errors import StorageError
from checkpointing.storage.locations import canonical
from dashboard.forms.launch import LaunchForm, check_program, lines_of, settings_in
from dashboard.language import rendered
from monitoring.masking import unmasked_launch
from monitoring.models import Cluster, Job, RestartAttempt
from monitoring.reasons.refusals import reason_of
from monitoring.recovery.launching import BadLaunch, check_launch
from monitoring.recovery.manual import LONGEST_PATH, Origin

EMPTY, SAVEPOINT, CHECKPOINT = "empty", "savepoint", "checkpoint"
_STATES = (
    (EMPTY, _("None: the job reads its input from the beginning")),
    (SAVEPOINT, _("A savepoint or retained checkpoint")),
    (CHECKPOINT, _("A checkpoint location that Spark wrote without Waymark")),
)
_KEPT = ("upload", "jar_id", "entry_class", "program_args", "configuration", "parallelism")


class CheckpointsForm(forms.Form):
    """The form of checkpoint locations that Spark wrote without Waymark, by query name."""

    checkpoints = forms.CharField(
        required=False,
        label=_("Checkpoint location"),
        help_text=_(
            "The checkpointLocation of the query. For a program with several queries, one NAME=LOCATION per line. "
            "Stop the old job first. Waymark copies the location and does not change it."
        ),
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )

    def clean_checkpoints(self) -> dict[str, str]:
        try:
            found = locations_by_query([line.strip() for line in lines_of(self.cleaned_data["checkpoints"])])
        except ValueError as problem:
            raise forms.ValidationError(capfirst(_sentence(problem))) from problem
        return {query: _location(location) for query, location in found.items()}


class SavepointForm(forms.Form):
    """The form of the location of a savepoint or retained checkpoint."""

    savepoint = forms.CharField(
        required=False,
        max_length=LONGEST_PATH,
        label=_("Location"),
        help_text=_("An absolute path on the machine of the job manager, or a URL, for example s3://…"),
    )

    def clean_savepoint(self) -> str:
        return _location(self.cleaned_data["savepoint"].strip())


class SubmitForm(CheckpointsForm, SavepointForm):
    """The form of a new job. After validation, `spec` is its launch record and `origin` the snapshot to start from.

    `earlier` is a failed start whose values fill in the form. Its secrets are shown hidden. A value that is submitted
    hidden keeps the secret.
    """

    name = forms.CharField(max_length=500, label=_("Job name"))
    state = forms.ChoiceField(choices=_STATES, widget=forms.RadioSelect, initial=EMPTY, label=_("Initial state"))
    field_order = ("name", *_KEPT, "state", "savepoint", "checkpoints")

    def __init__(self, *args: Any, cluster: Cluster, earlier: RestartAttempt | None = None, **options: Any) -> None:
        self._earlier = dict(earlier.launch or {}) if earlier else {}
        self._job = Job(cluster=cluster, launch=self._earlier or None)
        launch = LaunchForm(job=self._job, states=[], version=None, admin=True)
        kept = {name: launch.initial[name] for name in _KEPT if name in launch.initial}
        super().__init__(*args, **options | ({"initial": kept | _origin_of(earlier)} if earlier else {}))
        for name in _KEPT:
            self.fields[name] = launch.fields[name]
        self.fields["upload"].label = _("Program")
        self.fields["entry_class"].help_text = _(
            "module:function to call a function, or file.py to run the file as a script. Empty: the uploaded .py file "
            "runs as a script."
        )
        self.order_fields(self.field_order)
        self.spec: dict[str, Any] = {}

    @property
    def origin(self) -> Origin:
        match self.cleaned_data["state"]:
            case "savepoint":
                return Origin(path=self.cleaned_data["savepoint"])
            case "checkpoint":
                return Origin(imports=self.cleaned_data["checkpoints"])
            case _:
                return Origin()

    def clean_upload(self) -> Any:
        return check_program(self.cleaned_data["upload"], self._job)

    def clean_entry_class(self) -> str:
        """Return the entry point. If it is empty, an uploaded .py file runs as a script, as with `manage.py submit`."""
        entry, sent = self.cleaned_data["entry_class"].strip(), self.cleaned_data.get("upload")
        if not entry and sent and sent.name.endswith(".py"):
            return str(sent.name)
        if not entry:
            raise forms.ValidationError(self.fields["entry_class"].error_messages["required"], code="required")
        return str(entry)

    def clean_configuration(self) -> dict[str, str]:
        settings = settings_in(self.cleaned_data["configuration"])
        try:
            check_keys(settings)
        except ValueError as problem:
            raise forms.ValidationError(_sentence(problem)) from problem
        return settings

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        for state in (SAVEPOINT, CHECKPOINT):
            field = "savepoint" if state == SAVEPOINT else "checkpoints"
            if cleaned.get("state") == state and field not in self.errors and not cleaned.get(field):
                self.add_error(field, _("Enter a location."))
        if not self.errors:
            self._set_spec(cleaned)
        if not self.errors:
            self._check(self.spec | ({"jar_id": cleaned["upload"].name} if cleaned["upload"] else {}))
        return cleaned

    def _set_spec(self, cleaned: dict[str, Any]) -> None:
        try:
            self.spec = unmasked_launch(self._spec(cleaned), self._earlier)
        except ValueError as problem:
            self.add_error("configuration", _sentence(problem))

    def _spec(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        return {
            "kind": "waymark",
            "jar_id": cleaned["jar_id"].strip(),
            "entry_class": cleaned["entry_class"],
            "program_args": lines_of(cleaned["program_args"]),
            "parallelism": cleaned["parallelism"],
            "configuration": cleaned["configuration"],
        }

    def _check(self, spec: dict[str, Any]) -> None:
        try:
            check_launch(spec)
        except BadLaunch as problem:
            field = "upload" if problem.field == "jar_id" else problem.field
            allowed = rendered(problem.allowed)
            text = f"{problem.value!r}: {allowed}." if problem.value else f"{capfirst(allowed)}."
            self.add_error(field if field in self.fields else None, text)


def _origin_of(earlier: RestartAttempt) -> dict[str, str]:
    """Return the form values for the name and the snapshot of an earlier start."""
    lines = [f"{query}={location}" if query else location for query, location in earlier.imports.items()]
    path = "" if lines else earlier.restore_path
    state = CHECKPOINT if lines else SAVEPOINT if path else EMPTY
    return {"name": earlier.job.name, "state": state, "savepoint": path, "checkpoints": "\n".join(lines)}


def _location(text: str) -> str:
    if not text:
        return ""
    try:
        return canonical(text)
    except StorageError as problem:
        raise forms.ValidationError(_sentence(problem)) from problem


def _sentence(problem: Exception) -> str:
    return _("%(problem)s.") % {"problem": rendered(reason_of(problem))}
