"""Forms for accounts: those of administrators, and the preferences of each user."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from dashboard.access import accounts
from dashboard.forms.choices import in_language
from dashboard.forms.editing import EditForm
from dashboard.forms.selector import checked_selector
from monitoring.models import Account, AuditEntry, Cluster, GrantedRole

NOTHING, VIEWER, OPERATOR, ADMIN = "nothing", "viewer", "operator", "admin"
ROLES = (
    (VIEWER, _("viewer: can see everything")),
    (OPERATOR, _("operator: can also act on everything")),
    (ADMIN, _("administrator: can also manage clusters, programs and users")),
    (NOTHING, _("grants only: can see only what is granted")),
)
_PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}


class RoleForm(EditForm, forms.Form):
    """The role and mail address of `user`, which may be new."""

    role = forms.ChoiceField(choices=ROLES, initial=VIEWER, widget=forms.RadioSelect, label=_("Role"))
    email = forms.EmailField(required=False, label=_("Mail address"), widget=forms.EmailInput(attrs=_PLAIN))

    def __init__(self, user: User, data: Mapping[str, Any] | None = None) -> None:
        self.user = user
        initial = {"role": accounts.role_name(user), "email": user.email} if user.pk else {}
        super().__init__(data, initial=initial, label_suffix="")

    def edited_row(self) -> User:
        return self.user

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return accounts.audit_entries(self.user).filter(action="user.change")


class UserForm(RoleForm):
    """A new account. Its user should change the initial password."""

    username = forms.CharField(
        max_length=150,
        label=_("User name"),
        validators=User._meta.get_field("username").validators,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text=_("Letters, digits and @ . + - _"),
    )
    password = forms.CharField(
        max_length=500,
        strip=False,
        label=_("Initial password"),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_("At least 8 characters, and not a common password."),
    )

    field_order = ("username", "email", "password", "role")

    def clean_username(self) -> str:
        name = User.normalize_username(str(self.cleaned_data["username"]).strip())
        if User.objects.filter(username__iexact=name).exists():
            raise ValidationError(_("An account with this name already exists."))
        return name

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("password"):
            _check_password(self, cleaned["password"], User(username=cleaned.get("username", "")))
        return cleaned


class PasswordForm(forms.Form):
    """A new password that an administrator sets for an account."""

    password = forms.CharField(
        max_length=500,
        strip=False,
        label=_("New password"),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_("At least 8 characters, and not a common password. Ends all sessions and revokes all API tokens."),
    )

    def __init__(self, *args: Any, user: User, **options: Any) -> None:
        self.user = user
        super().__init__(*args, **options)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("password"):
            _check_password(self, cleaned["password"], self.user)
        return cleaned


class GrantForm(forms.Form):
    role = forms.ChoiceField(choices=in_language(GrantedRole.choices), initial=GrantedRole.VIEWER, label=_("Role"))
    cluster = forms.ModelChoiceField(
        Cluster.objects.filter(archived_at=None),
        required=False,
        label=_("Cluster"),
        empty_label=_("– jobs by label –"),
    )
    selector = forms.CharField(
        max_length=500,
        required=False,
        label=_("Or jobs with labels"),
        widget=forms.TextInput(attrs=_PLAIN),
        help_text=_("For example team=payments,env!=dev or job=orders-*"),
    )

    def clean_selector(self) -> str:
        return checked_selector(" ".join(str(self.cleaned_data["selector"]).split()))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if bool(cleaned.get("cluster")) == bool(cleaned.get("selector")) and "selector" not in self.errors:
            both = bool(cleaned.get("cluster"))
            not_both = _("Select a cluster or enter labels, not both.")
            self.add_error("selector", not_both if both else _("Select a cluster or enter labels."))
        return cleaned


class PreferencesForm(EditForm, forms.Form):
    """The preferences of `user`. `server` is the time zone of the server."""

    time_zone = forms.ChoiceField(
        required=False,
        label=_("Time zone"),
        help_text=_("Used for all dates and times on the pages."),
    )

    def __init__(self, user: User, data: Mapping[str, Any] | None = None, *, server: str) -> None:
        self.user = user
        stored = Account.objects.filter(user=user).values_list("time_zone", flat=True).first()
        super().__init__(data, initial={"time_zone": stored or ""}, label_suffix="")
        choices = [
            ("", _("time zone of the browser, or of the server (%(zone)s)") % {"zone": server}),
            *((name, name.replace("_", " ")) for name in zones()),
        ]
        self.fields["time_zone"].choices = choices  # type: ignore[attr-defined]

    def edited_row(self) -> User:
        return self.user

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.none()


def zones() -> list[str]:
    """Return the offered time zones: UTC, and those with a continent and a city."""
    return ["UTC", *sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))]


def _check_password(form: forms.Form, password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as weak:
        form.add_error("password", weak)
