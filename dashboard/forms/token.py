"""The form for a new token of the REST API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from dashboard.access.reach import Reach
from dashboard.access.roles import Role
from monitoring.models import Cluster, Discovery

READ, WRITE, REPORT = "read", "write", "report-"
NEVER = "never"
LASTS = (("30", _("30 days")), ("90", _("90 days")), ("365", _("1 year")), (NEVER, _("until revoked")))


class TokenForm(forms.Form):
    name = forms.CharField(
        max_length=100,
        label=_("Name"),
        help_text=_("The program that uses the token, for example nightly report."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        error_messages={"required": _("Enter the name of the program that uses the token.")},
    )
    may = forms.ChoiceField(
        choices=((READ, _("read")), (WRITE, _("read and write, with your rights"))),
        initial=READ,
        widget=forms.RadioSelect,
        label=_("Permissions"),
    )
    lasts = forms.ChoiceField(
        choices=LASTS, initial="90", label=_("Valid for"), help_text=_("A shorter period is safer.")
    )
    password = forms.CharField(
        max_length=500,
        strip=False,
        label=_("Your password"),
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
        error_messages={"required": _("Enter your password. The token stays valid after your session ends.")},
    )

    def __init__(self, *args: Any, asks_password: bool, reach: Reach, **options: Any) -> None:
        """Offer tokens that report for the clusters with the agent that the account may operate."""
        super().__init__(*args, **options)
        clusters = Cluster.objects.filter(discovery=Discovery.AGENT, archived_at=None)
        may_report = [each for each in clusters if (reach.role_on(None, each.pk) or Role.VIEWER) >= Role.OPERATOR]
        self._clusters = {f"{REPORT}{each.pk}": each for each in may_report}
        may = self.fields["may"]
        assert isinstance(may, forms.ChoiceField)  # noqa: S101 - for the type
        text = _("only report queries for %(cluster)s")
        may.choices = [*may.choices, *((key, text % {"cluster": each}) for key, each in self._clusters.items())]  # type: ignore[misc]
        if not asks_password:
            del self.fields["password"]

    @property
    def typed_password(self) -> str:
        return str(self.cleaned_data.get("password", ""))

    def clean_name(self) -> str:
        return " ".join(str(self.cleaned_data["name"]).split())

    @property
    def may_write(self) -> bool:
        return bool(self.cleaned_data["may"] == WRITE)

    @property
    def reports_for(self) -> Cluster | None:
        return self._clusters.get(self.cleaned_data["may"])

    def expires_at(self, now: datetime) -> datetime | None:
        lasts = self.cleaned_data["lasts"]
        return None if lasts == NEVER else now + timedelta(days=int(lasts))
