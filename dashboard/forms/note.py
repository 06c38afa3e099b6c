"""The note with which a person moves an incident on."""

from __future__ import annotations

from django import forms


class NoteForm(forms.Form):
    note = forms.CharField(required=False, max_length=2_000, label="Note", widget=forms.TextInput)
