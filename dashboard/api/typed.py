"""Pass JSON to the forms of the pages, so that the API has the same validation and errors.

A body contains only the fields to change. Every other field has the value that the form shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.db.models import Model
from django.http import QueryDict
from ninja import Schema
from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field

from dashboard.acts.shown import ShownRun
from dashboard.api.errors import FieldError, Refused, errors_of
from dashboard.forms.spans import SpanField

F = TypeVar("F", bound=forms.BaseForm)


def _in_utc(at: datetime) -> datetime:
    """Convert a time to UTC, because PostgreSQL refuses offsets of more than 16 hours and Python accepts them."""
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("a time from year 1 to year 9999 in UTC is needed") from None


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Span = int | str | None  # whole seconds, or a text such as "15 min"


class Body(Schema):
    """A request body. An unknown field is an error, so that a misspelled field is not silently ignored."""

    model_config = ConfigDict(extra="forbid")

    def given(self) -> dict[str, Any]:
        """Return only the fields that the client has sent."""
        return self.model_dump(exclude_unset=True)


class WhyIn(Body):
    reason: str = Field("", max_length=2000, description="Recorded in the audit log.")


class ShownIn(Body):
    run_id: int | None = Field(
        None, description="The `run_id` of the job that you saw. Refused if the job now has another current run."
    )

    @property
    def shown(self) -> ShownRun | None:
        return ShownRun(self.run_id) if self.run_id is not None else None


class WhyShownIn(WhyIn, ShownIn): ...


def filled(form: forms.BaseForm, given: Mapping[str, Any]) -> QueryDict:
    """Return the data that a browser would send if `given` were entered in the page of the unbound `form`.

    Raises:
        Refused: A name is not a field, or the account may not change the field.
    """
    _require_known(form, given)
    data = QueryDict(mutable=True)
    for name, field in form.fields.items():
        value = given[name] if name in given else form[name].value()
        _put(data, name, field, value)
    return data


def checked(form: F, hidden: Iterable[str] = ()) -> F:
    """Return the bound form if it is valid.

    Raises:
        Refused: The form is not valid. The response lists the errors of all fields.
    """
    if not form.is_valid():
        raise Refused(422, fields=errors_of(form, hidden))
    return form


def _require_known(form: forms.BaseForm, given: Mapping[str, Any]) -> None:
    known = ", ".join(name for name, field in form.fields.items() if not field.disabled)
    wrong = [FieldError(field=n, value=None, message=f"Not one of: {known}.") for n in given if n not in form.fields]
    fixed = [
        FieldError(field=n, value=None, message="Your account may not change this field.")
        for n in given
        if n in form.fields and form.fields[n].disabled
    ]
    if wrong or fixed:
        raise Refused(422, fields=[*wrong, *fixed])


def _put(data: QueryDict, name: str, field: forms.Field, value: Any) -> None:
    if isinstance(field, forms.FileField):
        return
    if isinstance(field, forms.BooleanField):
        if value:
            data[name] = "on"
        return
    if isinstance(value, list | tuple) and isinstance(
        field, forms.MultipleChoiceField | forms.ModelMultipleChoiceField
    ):
        data.setlist(name, [str(getattr(each, "pk", each)) for each in value])
        return
    data[name] = _text(field, value)


def _text(field: forms.Field, value: Any) -> str:
    if value is None or isinstance(value, UploadedFile):
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Model):
        return str(value.pk)
    if isinstance(field, SpanField) and isinstance(value, int):
        return f"{value} s"
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    prepared = field.prepare_value(value)
    return "" if prepared is None else str(prepared)
