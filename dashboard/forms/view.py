"""The form that saves the filters of the fleet page under a name."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode

from django import forms
from django.utils.translation import gettext_lazy as _

from monitoring.models import SavedView

KEPT = ("q", "state", "cluster", "labels", "sort", "order", "ended", "group")
MOST = 30


def filters_of(query: str) -> str:
    """Return the filters of a query string in a fixed order, so that equal filters are equal texts."""
    given = parse_qs(query)
    return urlencode([(name, given[name][-1]) for name in KEPT if given.get(name, [""])[-1]])


class ViewForm(forms.Form):
    name = forms.CharField(label=_("Name"), max_length=60)
    query = forms.CharField(widget=forms.HiddenInput, max_length=1000)

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._user = user

    def clean_query(self) -> str:
        query = filters_of(self.cleaned_data["query"])
        if not query:
            raise forms.ValidationError(_("There is no filter to save. Select a level, a cluster or labels first."))
        return query

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        own = SavedView.objects.filter(user=self._user)
        if own.exclude(name=cleaned.get("name", "")).count() >= MOST:
            raise forms.ValidationError(_("You can save at most %(MOST)s views. Delete one first.") % {"MOST": MOST})
        return cleaned

    def save(self) -> SavedView:
        """Save the view. It replaces a view with the same name."""
        view, _made = SavedView.objects.update_or_create(
            user=self._user, name=self.cleaned_data["name"], defaults={"query": self.cleaned_data["query"]}
        )
        return view
