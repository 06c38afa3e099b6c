"""The launch record of a job, and the action to take with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.db.models import QuerySet
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext_lazy as _

from checkpointing.ids import new_id
from checkpointing.jobs.known_keys import check_keys
from dashboard.forms.editing import EditForm
from dashboard.language import rendered
from monitoring.masking import shown_launch, unmasked_launch
from monitoring.models import AuditEntry, Engine, Job, LaunchVersion
from monitoring.reasons.refusals import reason_of
from monitoring.recovery.found_launch import parallelism_of, settings_of
from monitoring.recovery.launch_command import DEFAULT_LIMIT_S, LONGEST_LIMIT_S, SHORTEST_LIMIT_S, uses
from monitoring.recovery.launch_values import LaunchValues, NotRun
from monitoring.recovery.launching import BadLaunch, check_launch

SAVE, REPLACE, CLONE = "save", "replace", "clone"
_NOW = (
    (SAVE, _("Save only: the launch record takes effect at the next start")),
    (REPLACE, _("Stop the job and restart it with this launch record")),
    (CLONE, _("Start a second job")),
)
_KINDS = {
    "waymark": _("a program on Waymark's job manager"),
    "flink-jar": _("a jar on the Flink cluster"),
    "command": _("a command that Waymark's worker runs"),
}
_CONTINUES = "  "  # the beginning of further lines of a value
LARGEST_MB: int = settings.WAYMARK_MAX_PROGRAM_MB


@dataclass(frozen=True)
class _Programs:
    """The programs that an engine accepts, with the texts of their fields."""

    kind: str
    suffixes: tuple[str, ...]
    offered: Any
    refused: Any
    entry: Any


_PROGRAMS = {
    Engine.SPARK: _Programs(
        kind="waymark",
        suffixes=(".py", ".zip", ".whl"),
        offered=format_lazy(_("A .py, .zip or .whl file, at most {most} MB."), most=LARGEST_MB),
        refused=_("%(name)s is not a .py, .zip or .whl file."),
        entry=_("module:function to call a function, or file.py to run the file as a script."),
    ),
    Engine.FLINK: _Programs(
        kind="flink-jar",
        suffixes=(".jar",),
        offered=format_lazy(_("A .jar file, at most {most} MB."), most=LARGEST_MB),
        refused=_("%(name)s is not a .jar file."),
        entry=_("The main class of the jar. Empty: the class in its manifest."),
    ),
}


def _programs_of(job: Job) -> _Programs:
    return _PROGRAMS[Engine.SPARK if job.cluster.engine == Engine.SPARK else Engine.FLINK]


def check_program(sent: Any, job: Job) -> Any:
    """Return the uploaded program, or None if there is none.

    Raises:
        ValidationError: the job's engine does not accept this type of file, or the file is too large.
    """
    programs = _programs_of(job)
    if sent and not sent.name.endswith(programs.suffixes):
        raise forms.ValidationError(programs.refused % {"name": sent.name})
    if sent and sent.size > LARGEST_MB * 1024 * 1024:
        raise forms.ValidationError(
            _("The file has %(size)s bytes. At most %(LARGEST_MB)s MB are allowed.")
            % {"size": format(sent.size, ","), "LARGEST_MB": LARGEST_MB}
        )
    return sent


class ProgramForm(forms.Form):
    program = forms.FileField(max_length=200)

    def __init__(self, *args: Any, job: Job, **options: Any) -> None:
        super().__init__(*args, **options)
        self._job = job

    def clean_program(self) -> Any:
        return check_program(self.cleaned_data["program"], self._job)


class StartForm(EditForm, forms.Form):
    """The fields of a start with a changed program: the changes, the snapshot, and what follows a failed start.

    Without `admin`, the fields in FIXED cannot be edited, because only administrators may choose programs. Secrets are
    shown hidden. A value that is submitted hidden keeps the stored secret.
    """

    entry_class = forms.CharField(required=False, max_length=500, label=_("Entry point"))
    program_args = forms.CharField(
        required=False, label=_("Arguments"), help_text=_("One per line."), widget=forms.Textarea(attrs={"rows": 4})
    )
    parallelism = forms.IntegerField(required=False, min_value=1, max_value=32_768, label=_("Parallelism"))
    state = forms.ChoiceField(required=False, label=_("Snapshot"))
    goes_back = forms.BooleanField(
        required=False,
        initial=True,
        label=_("If the start fails, start the job with its previous launch record, from the same snapshot"),
    )
    note = forms.CharField(
        required=False, max_length=500, label=_("Note"), help_text=_("The reason for the change, for the history.")
    )

    FIXED: ClassVar[tuple[str, ...]] = ("entry_class", "program_args")

    def __init__(self, *args: Any, job: Job, states: list[tuple[str, str]], admin: bool, **options: Any) -> None:
        self.job, self.admin = job, admin
        super().__init__(*args, **options)
        self.fields["state"].choices = states  # type: ignore[attr-defined]
        if not admin:
            for name in self.FIXED:
                self.fields[name].disabled = True

    def edited_row(self) -> Job:
        return self.job


class LaunchForm(StartForm):
    """The form of a launch record. After validation, `spec` is the record."""

    kind = forms.ChoiceField(label=_("Launch type"))
    upload = forms.FileField(required=False, label=_("New version of the program"))
    jar_id = forms.CharField(
        required=False,
        max_length=500,
        label=_("Program on the cluster"),
        help_text=_("The ID of the program on the cluster. An uploaded program replaces it."),
    )
    configuration = forms.CharField(
        required=False,
        label=_("Configuration"),
        help_text=_("key: value, one per line. Continuation lines of a value begin with two spaces."),
        widget=forms.Textarea(attrs={"rows": 5}),
    )
    command = forms.CharField(
        required=False,
        label=_("Command"),
        help_text=_(
            "One argument per line, starting with the path of the program. The command runs without a shell. Waymark "
            "replaces {savepoint}, {job_id}, {job_name}, {rest_url}, {rest_address} (host:port) and {parallelism}. The "
            "command also gets these values as environment variables, for example WAYMARK_SAVEPOINT."
        ),
        widget=forms.Textarea(attrs={"rows": 5}),
    )
    limit_s = forms.IntegerField(
        required=False,
        min_value=SHORTEST_LIMIT_S,
        max_value=LONGEST_LIMIT_S,
        label=_("Timeout of the command"),
        help_text=format_lazy(
            _("In seconds, from {shortest} to {longest}. Then Waymark kills the command. Empty: {default}."),
            shortest=SHORTEST_LIMIT_S,
            longest=LONGEST_LIMIT_S,
            default=DEFAULT_LIMIT_S,
        ),
    )
    now = forms.ChoiceField(
        choices=_NOW,
        widget=forms.RadioSelect,
        label=_("Action"),
    )
    name = forms.CharField(
        required=False,
        max_length=500,
        label=_("Name of the second job"),
        help_text=_(
            "Give the second job its own outputs. The savepoint contains the state of the sinks: Flink's file sink "
            "continues to write into the directory of the first job."
        ),
    )

    FIXED: ClassVar[tuple[str, ...]] = (
        *("kind", "upload", "jar_id", "entry_class", "program_args", "configuration", "command", "limit_s"),
    )

    def __init__(
        self,
        *args: Any,
        job: Job,
        states: list[tuple[str, str]],
        version: LaunchVersion | None,
        admin: bool,
        **options: Any,
    ) -> None:
        self.base: dict[str, Any] = dict(version.spec if version else job.launch or {})
        self.found: dict[str, Any] = {} if self.base else _values_from_engine(job)
        typed = _initial_values(shown_launch(self.base or self.found), job)
        options = options | {"initial": typed | options.get("initial", {})}
        super().__init__(*args, job=job, states=states, admin=admin, **options)
        programs = _programs_of(job)
        self.fields["upload"].help_text = programs.offered
        self.fields["entry_class"].help_text = programs.entry
        # A stored record of another kind keeps its kind.
        kinds = dict.fromkeys((programs.kind, "command", str(typed["kind"])))
        self.fields["kind"].choices = [(kind, _KINDS[kind]) for kind in kinds if kind in _KINDS]  # type: ignore[attr-defined]
        if not (job.current_run and job.current_run.live):
            start = (REPLACE, _("Start the job with this launch record"))
            self.fields["now"].choices = [start if each[0] == REPLACE else each for each in _NOW]  # type: ignore[attr-defined]
        self.spec: dict[str, Any] = {}

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(action="job.launch", target=f"job {self.job.name}")

    def stored_values(self) -> dict[str, object]:
        """Return the launch record as one value. The fields may show one of its earlier versions."""
        return {"launch": self.job.launch}

    def label_of(self, name: str) -> str:
        return str(_("Launch record"))

    def text_of(self, name: str) -> str:
        newest = self.job.launch_versions.first()
        return str(_("version %(number)s") % {"number": newest.number if newest else "–"})

    def changes_since(self, sent: Mapping[str, Any]) -> str:
        return "" if sent.get("now") == CLONE else super().changes_since(sent)  # a second job overwrites nothing

    def clean_upload(self) -> Any:
        return check_program(self.cleaned_data["upload"], self.job)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        try:
            self.spec = unmasked_launch(self._spec(cleaned), self.base or self.found)
            if cleaned["kind"] == "waymark":
                check_keys(self.spec["configuration"])
        except ValueError as problem:
            self.add_error(
                "command" if cleaned["kind"] == "command" else "configuration",
                _("%(problem)s.") % {"problem": rendered(reason_of(problem))},
            )
            return cleaned
        try:
            check_launch(self.spec | ({"jar_id": cleaned["upload"].name} if cleaned["upload"] else {}))
            if cleaned["kind"] == "command":
                self._check_placeholders()
        except BadLaunch as problem:
            self.add_error(*self._field_error(problem))
        except NotRun as problem:
            self.add_error("command", rendered(problem.reason))
        if cleaned["now"] == CLONE and not cleaned["name"].strip():
            self.add_error("name", _("Enter a name for the second job."))
        return cleaned

    def _check_placeholders(self) -> None:
        """Raise NotRun if the values of this job, such as its name, cannot be inserted into the command."""
        values = LaunchValues(
            savepoint="/",
            job_id=new_id(),
            job_name=self.job.name,
            rest_url=self.job.cluster.rest_url,
            parallelism=self.spec.get("parallelism"),
        )
        values.filled(self.spec["command"])

    def _field_error(self, problem: BadLaunch) -> tuple[str | None, str]:
        """Return the field and the error text. The text omits the key of the record, because the field has a label."""
        if problem.field not in self.fields:
            return None, rendered(problem.reason)
        allowed = rendered(problem.allowed)
        return problem.field, f"{problem.value!r}: {allowed}." if problem.value else f"{capfirst(allowed)}."

    def _spec(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        if cleaned["kind"] == "command":
            command = lines_of(cleaned["command"])
            # Keep the initial parallelism only if the command uses it. A changed value is always kept.
            is_meant = "parallelism" in self.changed_data or uses(command, "parallelism")
            chosen = {"limit_s": cleaned["limit_s"], "parallelism": cleaned["parallelism"] if is_meant else None}
            given = {name: value for name, value in chosen.items() if value is not None}
            return {"kind": "command", "command": command, **given}
        kept = self.base if self.base.get("kind") in (None, "waymark", "flink-jar") else {}
        return kept | {
            "kind": cleaned["kind"],
            "jar_id": cleaned["jar_id"].strip(),
            "entry_class": cleaned["entry_class"].strip() or None,
            "program_args": lines_of(cleaned["program_args"]),
            "parallelism": cleaned["parallelism"],
            "configuration": self._configuration(cleaned["configuration"]),
        }

    def _configuration(self, text: str) -> dict[str, str]:
        try:
            return settings_in(text)
        except forms.ValidationError as problem:
            self.add_error("configuration", problem)
            return {}


def settings_in(text: str) -> dict[str, str]:
    """Return the settings in lines of the form `key: value`. A line with two leading spaces continues the value above.

    Raises:
        ValidationError: some lines have another form. The error names each of them.
    """
    pairs: dict[str, str] = {}
    wrong: list[str] = []
    key = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if key and line.startswith(_CONTINUES):
            pairs[key] += f"\n{line.removeprefix(_CONTINUES)}"
            continue
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        key = name.strip()
        if not colon or not key:
            wrong.append(
                _("Line %(number)s is %(strip)s. Write it as key: value.")
                % {"number": number, "strip": repr(line.strip())}
            )
        pairs[key] = value.strip()
    if wrong:
        raise forms.ValidationError(wrong)
    return pairs


def _values_from_engine(job: Job) -> dict[str, Any]:
    """Return what the engine reports about a job without a launch record."""
    run = job.current_run
    if run is None:
        return {}
    return {"parallelism": parallelism_of(run.vertices), "configuration": settings_of(run.checkpoint_config)}


def _initial_values(spec: dict[str, Any], job: Job) -> dict[str, Any]:
    configuration = spec.get("configuration") or {}
    return {
        "kind": spec.get("kind") or _programs_of(job).kind,
        "jar_id": spec.get("jar_id") or "",
        "entry_class": spec.get("entry_class") or "",
        "program_args": "\n".join(spec.get("program_args") or []),
        "configuration": settings_text(dict(sorted(configuration.items()))),
        "parallelism": spec.get("parallelism"),
        "command": "\n".join(spec.get("command") or []),
        "limit_s": spec.get("limit_s"),
        "now": SAVE,  # the preselected action never stops a job
    }


def settings_text(settings: Mapping[str, str]) -> str:
    """Return settings as lines that `settings_in` can read."""
    return "\n".join(f"{key}: {value}".replace("\n", f"\n{_CONTINUES}") for key, value in settings.items())


def lines_of(text: str) -> list[str]:
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()]
