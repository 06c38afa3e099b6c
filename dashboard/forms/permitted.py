"""Limit the choices of fields to the rows that the reader may operate."""

from __future__ import annotations

from django import forms

from dashboard.access.reach import Reach
from dashboard.access.roles import Role
from monitoring.models import Cluster


def offer_clusters(form: forms.BaseForm, reach: Reach, *, else_all: bool = False) -> None:
    """Limit the field `cluster` to the clusters that the reader may operate.

    With `else_all`, an empty field means everything, which needs an operator of everything.
    """
    field = form.fields["cluster"]
    if not isinstance(field, forms.ModelChoiceField) or operates_everything(reach):
        return
    if else_all:
        field.required, field.empty_label = True, None
    field.queryset = Cluster.objects.filter(pk__in=[pk for pk, role in reach.clusters.items() if role >= Role.OPERATOR])


def operates_everything(reach: Reach) -> bool:
    return reach.global_role is not None and reach.global_role >= Role.OPERATOR
