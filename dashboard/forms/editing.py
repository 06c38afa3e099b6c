"""Forms that edit stored values. They do not silently overwrite what somebody else saved after the page was loaded.

parts/shown_values.html is a hidden field with a digest of each stored value. If a stored value is another one when the
form is sent, the form is refused with the changes, and keeps what was typed. The refused page has the new digests, so
that sending it again saves it. Requests without the field, such as those of the REST API, are not checked. The caller
locks the row (`for_editing`) before it creates the form, so that two requests at the same time are checked in turn.

A form that adds a row for a scope has parts/shown_newest.html: it is refused if somebody else has added a row for the
same scope since the page was loaded (`newer_than_shown`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, TypeVar, cast

from django import forms
from django.db.models import Max, Model, QuerySet
from django.http import QueryDict
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from dashboard.audit_texts import actor_name
from monitoring.models import AuditEntry
from monitoring.secret import Secret
from monitoring.units import age_text

FIELD = "shown_values"
NEWEST = "shown_newest"
_LONGEST_TEXT = 80
M = TypeVar("M", bound=Model)


def for_editing(rows: QuerySet[M]) -> QuerySet[M]:
    """Return the query that locks its rows until the transaction ends. Rows that refer to them can still be added."""
    return rows.select_for_update(no_key=True, of=("self",))


def newest_key(rows: QuerySet[Any]) -> int:
    """Return the value of the hidden field `shown_newest` for a form that adds a row."""
    return int(rows.aggregate(newest=Max("pk"))["newest"] or 0)


def newer_than_shown(rows: QuerySet[M], sent: Mapping[str, str]) -> QuerySet[M]:
    """Return the rows that were added after the page was loaded. Without the hidden field, return none."""
    shown = sent.get(NEWEST, "")
    return rows.filter(pk__gt=int(shown)) if shown.isdecimal() and len(shown) < 19 else rows.none()


def unchecked(sent: QueryDict) -> QueryDict:
    """Return the fields of a form that saves nothing, such as a preview. They are not compared with stored values."""
    fields = sent.copy()
    fields.pop(FIELD, None)
    return fields


class EditForm(forms.BaseForm):
    """A form that edits the values of a stored row."""

    # Fields whose values the page does not repeat, in addition to those with a Secret.
    unshown: ClassVar[Collection[str]] = ()

    def edited_row(self) -> Model:
        row: Model = self.instance  # type: ignore[attr-defined]
        return row

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        """Return the audit entries, newest first, of changes of the row. `names` are the fields that have changed."""
        raise NotImplementedError

    def stored_values(self) -> dict[str, object]:
        """Return the stored values by the name of the field."""
        return {name: self.get_initial_for_field(field, name) for name, field in self.fields.items()}

    def label_of(self, name: str) -> str:
        return str(self.fields[name].label)

    def text_of(self, name: str) -> str:
        """Return the stored value of a field as a person reads it."""
        field = self.fields[name]
        return _text(field, field.prepare_value(self.get_initial_for_field(field, name)))

    @cached_property
    def shown_values(self) -> str:
        """Return the value of the hidden field: the time in milliseconds and the digests. "" if the row is new."""
        if self.edited_row().pk is None:
            return ""
        at = int(timezone.now().timestamp() * 1000)
        return " ".join([f"{at}", *(f"{name}={digest}" for name, digest in self._digests.items())])

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        # Read the digests now, because later steps of the validation change the row.
        if self.shown_values and (changes := self.changes_since(self.data)):
            self.add_error(None, changes)
        return cleaned

    def changes_since(self, sent: Mapping[str, Any]) -> str:
        """Return what has changed since the page was loaded whose form is `sent`, or "" if nothing has."""
        if FIELD not in sent:
            return ""
        at, shown = _parse(str(sent[FIELD]))
        names = [name for name, digest in self._digests.items() if shown.get(name) != digest]
        if not names:
            return ""
        changes = "; ".join(self._describe(name) for name in names)
        texts = [_("The values have changed since this page was loaded: %(changes)s.") % {"changes": changes}]
        if last := self.audit_entries(names).filter(at__gt=at).first():
            who, age = actor_name(last.actor), age_text(timezone.now() - last.at)
            texts.append(_("The last change was made by %(who)s %(age)s ago.") % {"who": who, "age": age})
        texts.append(_("Your input is kept. To replace the other values, send the form again."))
        return " ".join(texts)

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {name: _digest(name, value) for name, value in self.stored_values().items()}

    def _describe(self, name: str) -> str:
        label = {"label": self.label_of(name)}
        if name in self.unshown or isinstance(self.stored_values()[name], Secret):
            return _("%(label)s has another value") % label
        return _("%(label)s is now %(value)s") % (label | {"value": self.text_of(name)})


def _parse(sent: str) -> tuple[datetime, dict[str, str]]:
    """Return the time and the digests. A time that is not a number is the present, so that no person is named."""
    first, *rest = sent.split(" ")
    is_time = first.isdecimal() and first.isascii() and len(first) < 15
    at = datetime.fromtimestamp(int(first) / 1000, UTC) if is_time else timezone.now()
    return at, dict(part.split("=", 1) for part in rest if "=" in part)


def _digest(name: str, value: object) -> str:
    # The digest has a key, so that nobody can find a secret by trying.
    written = json.dumps([name, value], default=_plain, sort_keys=True)
    return salted_hmac(__name__, written, algorithm="sha256").hexdigest()[:16]


def _plain(value: object) -> object:
    match value:
        case Secret():
            return value.stored()
        case Model():
            return value.pk
        case _:
            return str(value)


def _text(field: forms.Field, value: Any) -> str:
    if isinstance(field, forms.BooleanField):
        return _("on") if value else _("off")
    if isinstance(field, forms.ChoiceField):
        choices = cast("Iterable[tuple[object, object]]", field.choices)
        labels = {str(key): str(label) for key, label in choices}
        chosen: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
        keys = ["" if key is None else str(key) for key in chosen]
        value = ", ".join(labels.get(key, key) for key in keys)
    text = "" if value is None else " ".join(str(value).split())
    return Truncator(text).chars(_LONGEST_TEXT) or _("empty")
