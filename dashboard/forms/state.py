"""The form of a request to read the state in a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from dashboard.language import rendered
from dashboard.queries.state import Place, places_of
from monitoring.models import Checkpoint, StateReadKind
from monitoring.state_reads.queries import StateQuery, label_of

MOST_ROWS = 500
_LONG = 500


class StateForm(forms.Form):
    """The form of a request. `contents` is the state in the snapshot, and `others` are snapshots to compare it with."""

    kind = forms.ChoiceField(choices=StateReadKind.choices)
    place = forms.ChoiceField(
        label=_("State"), error_messages={"invalid_choice": _("This snapshot has no such state.")}
    )
    key_field = forms.CharField(required=False, max_length=_LONG, label=_("Key field"))
    key_text = forms.CharField(required=False, max_length=_LONG, label=_("Field value"), strip=False)
    contains = forms.CharField(required=False, max_length=_LONG, label=_("Key contains"), strip=False)
    partition = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=2**31 - 1,
        label=_("Partition"),
        error_messages={
            "invalid": _("Enter a partition number, for example 0."),
            "min_value": _("Partition numbers start at 0."),
        },
    )
    most = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_ROWS,
        label=_("Max. rows"),
        initial=100,
        error_messages=dict.fromkeys(
            ("invalid", "min_value", "max_value"), format_lazy(_("Enter a number from 1 to {most}."), most=MOST_ROWS)
        ),
    )
    other = forms.TypedChoiceField(required=False, coerce=int, empty_value=None, label=_("Compare with"))

    def __init__(self, contents: Mapping[str, Any], others: Sequence[Checkpoint], *args: Any, **options: Any) -> None:
        super().__init__(*args, **({"label_suffix": ""} | options))
        self._places: dict[str, Place] = {place.value: place for place in places_of(contents)}
        places, other = self.fields["place"], self.fields["other"]
        if isinstance(places, forms.ChoiceField) and isinstance(other, forms.ChoiceField):
            places.choices = [(value, place.label) for value, place in self._places.items()]
            other.choices = [("", _("Select a snapshot")), *((each.pk, rendered(label_of(each))) for each in others)]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("key_text") and not cleaned.get("key_field"):
            self.add_error("key_field", _("Enter the key field, or search for a part of the key instead."))
        if cleaned.get("kind") == StateReadKind.DIFF and "other" in cleaned and cleaned["other"] is None:
            self.add_error("other", _("Select the snapshot to compare with."))
        return cleaned

    @property
    def question(self) -> StateQuery:
        asked = self.cleaned_data
        place = self._places[asked["place"]]
        most = asked["most"] or 100
        return StateQuery(
            StateReadKind(asked["kind"]),
            query=place.query,
            operator=place.operator,
            view=place.view,
            key_field=asked["key_field"],
            key_text=asked["key_text"],
            contains=asked["contains"],
            partition=asked["partition"],
            most=most,
        )
