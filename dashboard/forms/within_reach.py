"""Fields that choose among rows offer those that the reader may see, and take no other."""

from __future__ import annotations

from django import forms

from dashboard.access.reach import Reach
from monitoring.models import Cluster


def offer_clusters(form: forms.BaseForm, reach: Reach, name: str = "cluster") -> None:
    field = form.fields[name]
    if isinstance(field, forms.ModelChoiceField) and not reach.sees_everything:
        field.queryset = reach.narrow_clusters(Cluster.objects.all())
