"""The forms of channels, one for each kind."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext_lazy as _

from dashboard.forms.automation import allowed_text
from dashboard.forms.editing import EditForm
from dashboard.forms.spans import SpanField
from dashboard.language import rendered
from monitoring.models import AuditEntry, Channel, ChannelKind
from monitoring.notify.apprise.transport import opens_alerts, service_name
from monitoring.notify.message import BadChannel
from monitoring.notify.shift import HOURS
from monitoring.notify.transports import transport_of
from monitoring.notify.wording.sandbox import BadTemplate, compile_template
from monitoring.reasons.notify import NotifyReason
from monitoring.savepoints.timetable import BadSchedule, Cron
from monitoring.secret import Secret, SecretUnreadable

if TYPE_CHECKING:
    ChannelModelForm = forms.ModelForm[Channel]
else:
    ChannelModelForm = forms.ModelForm

LONGEST_RECIPIENTS = 50
_MINUTE, _DAY = 60, 86_400


class ChannelForm(EditForm, ChannelModelForm):
    """The form fields that all kinds of channels have. Only an administrator has `may_allow_private`."""

    kind: ClassVar[ChannelKind]
    secret_field: ClassVar[str]
    repeat_every_s = SpanField(
        least=5 * _MINUTE,
        most=7 * _DAY,
        required=False,
        label=_("Repeat every"),
        help_text=_("Repeats until somebody acknowledges the incident, for example every 1 h. Empty: notifies once."),
    )
    escalate_after_s = SpanField(
        least=_MINUTE,
        most=7 * _DAY,
        required=False,
        label=_("Escalate after"),
        help_text=_("Escalates if nobody acknowledges the incident within this time, for example 15 min."),
    )
    group_wait_s = forms.IntegerField(
        min_value=0,
        max_value=600,
        label=_("Collect for (seconds)"),
        help_text=_("Incidents that open or are resolved within this time share one message. 0: no grouping."),
        error_messages={
            "invalid": _("Enter whole seconds from 0 to 600."),
            "min_value": _("Enter whole seconds from 0 to 600."),
            "max_value": _("At most 600 seconds, so that notifications are not too late."),
        },
    )
    messages_per_10_min = forms.IntegerField(
        min_value=1,
        max_value=1000,
        label=_("Max. messages in 10 min"),
        help_text=_("Further messages are combined into one digest."),
        error_messages={
            "invalid": _("Enter a whole number from 1 to 1000."),
            "min_value": _("At least 1. To receive nothing, disable the channel."),
            "max_value": _("At most 1000."),
        },
    )

    summary_cron = forms.CharField(
        required=False,
        max_length=100,
        label=_("Send a shift summary at"),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=_("Times as a cron expression, for example 0 8,20 * * *. Empty: no summaries."),
    )
    summary_time_zone = forms.CharField(
        required=False,
        max_length=64,
        label=_("Time zone of the summary"),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=_("For example Asia/Shanghai. Empty: UTC."),
    )
    summary_hours = forms.TypedChoiceField(
        choices=[(hours, format_lazy("{} {}", hours, _("h"))) for hours in HOURS],
        coerce=int,
        empty_value=12,  # type: ignore[arg-type]
        required=False,
        label=_("Hours in the summary"),
    )

    class Meta:
        model = Channel
        fields: tuple[str, ...] = (
            "name",
            "language",
            "enabled",
            "repeat_every_s",
            "escalate_after_s",
            "escalate_to",
            "group_wait_s",
            "messages_per_10_min",
            "summary_cron",
            "summary_time_zone",
            "summary_hours",
            "allow_private",
        )
        widgets: ClassVar[dict[str, Any]] = {"language": forms.RadioSelect}
        labels: ClassVar[dict[str, Any]] = {
            "enabled": _("Enabled"),
            "escalate_to": _("Escalate to"),
            "allow_private": _("May lead to a private address"),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            "escalate_to": _("The second channel, if nobody acknowledges the incident."),
            "allow_private": _("This machine and private networks. Only an administrator can allow them."),
        }

    def __init__(self, data: QueryDict | None = None, *, instance: Channel, may_allow_private: bool) -> None:
        super().__init__(data, instance=instance, label_suffix="")
        self.secret_changed = False
        self.keeps_secret = bool(instance.pk and instance.secret)
        self.fields["allow_private"].disabled = not may_allow_private
        others = Channel.objects.exclude(pk=self.instance.pk) if self.instance.pk else Channel.objects.all()
        self.fields["escalate_to"].queryset = others  # type: ignore[attr-defined]
        self.fields["escalate_to"].empty_label = _("no escalation")  # type: ignore[attr-defined]
        self.initial.update({name: value for name, value in self.first_values().items() if name not in self.initial})

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(action="channel.change", target=f"channel {self.instance.name}")

    def stored_values(self) -> dict[str, object]:
        return super().stored_values() | {self.secret_field: self.instance.secret}

    def first_values(self) -> dict[str, object]:
        """Return the initial values of the fields of this kind."""
        return {}

    def settings(self) -> dict[str, object]:
        """Return the channel's settings from the validated fields."""
        raise NotImplementedError

    def clean_name(self) -> str:
        name = " ".join(str(self.cleaned_data["name"]).split())
        if not name:
            raise ValidationError(_("Enter a name for the channel."))
        if Channel.objects.filter(name=name).exclude(pk=self.instance.pk).exists():
            raise ValidationError(_("Another channel has this name. Choose a different name."))
        return name

    def clean_summary_cron(self) -> str:
        return " ".join(self.cleaned_data["summary_cron"].split())

    def clean_summary_time_zone(self) -> str:
        return self.cleaned_data["summary_time_zone"].strip() or "UTC"

    def _check_summary(self, cleaned: dict[str, Any]) -> None:
        try:
            Cron(cleaned.get("summary_cron") or "0 8 * * *", cleaned.get("summary_time_zone") or "UTC")
        except BadSchedule as problem:
            at = "summary_time_zone" if problem.field == "savepoint_time_zone" else "summary_cron"
            self.add_error(at, allowed_text(problem))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        self._check_summary(cleaned)
        after, to = cleaned.get("escalate_after_s"), cleaned.get("escalate_to")
        if after and not to and "escalate_to" not in self.errors:
            self.add_error("escalate_to", _("Select a second channel, or leave “Escalate after” empty."))
        if to and not after and "escalate_after_s" not in self.errors:
            self.add_error(
                "escalate_after_s", _("Enter the time after which %(to)s is notified, for example 15 min.") % {"to": to}
            )
        return cleaned

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        self.instance.kind = self.kind
        if not self.errors:
            if {"summary_cron", "summary_time_zone", "enabled"} & set(self.changed_data):
                self.instance.next_summary_at = None  # the worker sets the next future time
            self.instance.settings = self.settings()
            self._take_secret()
            self._check_channel()

    def _take_secret(self) -> None:
        """Store the submitted secret. An empty field keeps the stored secret, unless its removal is checked."""
        typed = self.cleaned_data.get(self.secret_field) or ""
        if typed or self.cleaned_data.get("remove_secret"):
            self.instance.secret = Secret("" if self.cleaned_data.get("remove_secret") else typed)
            self.secret_changed = True

    def _check_channel(self) -> None:
        try:
            transport_of(self.kind).check(self.instance)
        except BadChannel as problem:
            field = problem.field if problem.field in self.fields else None
            self.add_error(field, capfirst(rendered(NotifyReason.SENTENCE(clause=problem.allowed))))
        except SecretUnreadable as problem:
            self.add_error(self.secret_field, str(problem))


class _SecretField(forms.CharField):
    """A secret. It is never displayed again, and an empty field keeps the stored value."""

    def __init__(self, **options: Any) -> None:
        widget = forms.PasswordInput(attrs={"autocomplete": "off", "spellcheck": "false"})
        super().__init__(required=False, max_length=2000, widget=widget, **options)


class _WordedForm(ChannelForm):
    """The form of channels that send text. The user may change the text with templates."""

    class Meta(ChannelForm.Meta):
        fields: tuple[str, ...] = (*ChannelForm.Meta.fields, "subject_template", "body_template")
        labels: ClassVar[dict[str, Any]] = {
            **ChannelForm.Meta.labels,
            "subject_template": _("Subject"),
            "body_template": _("Text"),
        }
        widgets: ClassVar[dict[str, Any]] = {
            **ChannelForm.Meta.widgets,
            "subject_template": forms.TextInput,
            "body_template": forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            **ChannelForm.Meta.help_texts,
            "subject_template": _(
                "Empty: the default subject in the channel's language. For example "
                "{{ severity }}: {{ job }} – {{ kind }}"
            ),
            "body_template": _(
                "Empty: the default text. Available: {{ sentence }}, {{ incident_url }}, "
                "{% for each in incidents %}{{ each.job }}{% endfor %} …"
            ),
        }

    def clean_subject_template(self) -> str:
        return self._template("subject_template")

    def clean_body_template(self) -> str:
        return self._template("body_template")

    def _template(self, name: str) -> str:
        source = str(self.cleaned_data.get(name) or "")
        try:
            compile_template(source)
        except BadTemplate as problem:
            raise ValidationError(str(problem)) from problem
        return source


class MailForm(_WordedForm):
    kind = ChannelKind.MAIL
    secret_field = "smtp"  # noqa: S105 (a field's name)
    to = forms.CharField(
        label=_("Recipients"),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text=_("Mail addresses, separated by commas."),
        error_messages={"required": _("Enter at least one mail address.")},
    )
    smtp = _SecretField(
        label=_("SMTP server"),
        help_text=_(
            "For example smtp+tls://user:password@mail.example.org:587 (smtp, smtps or smtp+tls). "
            "Empty: the stored server, or else the default server (EMAIL_URL)."
        ),
    )
    remove_secret = forms.BooleanField(required=False, label=_("Use the default server (EMAIL_URL)"))

    def first_values(self) -> dict[str, object]:
        to = self.instance.settings.get("to", [])
        return {"to": ", ".join(to) if isinstance(to, list) else str(to)}

    def clean_to(self) -> list[str]:
        found = [each for each in re.split(r"[\s,;]+", str(self.cleaned_data["to"])) if each]
        if len(found) > LONGEST_RECIPIENTS:
            raise ValidationError(
                _("%(len)s addresses: at most %(LONGEST_RECIPIENTS)s are allowed. Use a mailing list.")
                % {"len": len(found), "LONGEST_RECIPIENTS": LONGEST_RECIPIENTS}
            )
        for address in found:
            try:
                validate_email(address)
            except ValidationError:
                raise ValidationError(
                    _("%(address)s is not a mail address. Expected: name@example.org.") % {"address": address}
                ) from None
        if not found:
            raise ValidationError(_("Enter at least one mail address."))
        return list(dict.fromkeys(found))

    def settings(self) -> dict[str, object]:
        return {"to": self.cleaned_data["to"]}


class WebhookForm(ChannelForm):
    """The form of webhooks. It has no language, because programs read the messages."""

    class Meta(ChannelForm.Meta):
        fields: tuple[str, ...] = tuple(name for name in ChannelForm.Meta.fields if name != "language")

    kind = ChannelKind.WEBHOOK
    secret_field = "signing_secret"  # noqa: S105 (a field's name)
    url = forms.CharField(
        max_length=2000,
        label=_("Address"),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "inputmode": "url"}),
        help_text=_("For example https://example.org/hook. Waymark sends JSON by POST and follows no redirects."),
        error_messages={"required": _("Enter the address that receives the messages.")},
    )
    signing_secret = _SecretField(
        label=_("Signing secret"),
        help_text=_("With this secret, the receiver verifies that a message comes from Waymark (docs/alerts.md)."),
    )
    remove_secret = forms.BooleanField(required=False, label=_("Remove the signing secret"))

    def first_values(self) -> dict[str, object]:
        return {"url": self.instance.settings.get("url", "")}

    def settings(self) -> dict[str, object]:
        return {"url": self.cleaned_data["url"]}


class AppriseForm(_WordedForm):
    kind = ChannelKind.APPRISE
    secret_field = "apprise_url"  # noqa: S105 (a field's name)
    apprise_url = _SecretField(
        label=_("Apprise URL"),
        help_text=_(
            "For example slack://TokenA/TokenB/TokenC/#channel, dingtalk://ACCESS_TOKEN/, tgram://BotToken/ChatId. "
            "The URL contains the service's tokens. Waymark stores it encrypted and never shows it again."
        ),
    )

    def clean_apprise_url(self) -> str:
        url = str(self.cleaned_data["apprise_url"]).strip()
        if not url and not self.keeps_secret:
            raise ValidationError(_("Enter the Apprise URL of the service."))
        return url

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if cleaned.get("summary_cron") and opens_alerts(self._url(cleaned)):
            self.add_error(
                "summary_cron", _("A paging service would open an alert. Select another channel for summaries.")
            )
        return cleaned

    def _url(self, cleaned: dict[str, Any]) -> str:
        """Return the submitted URL, or the stored one."""
        try:
            return str(cleaned.get("apprise_url") or self.instance.secret.reveal())
        except SecretUnreadable:
            return ""

    def settings(self) -> dict[str, object]:
        """Return the name of the service. The URL is a secret and not part of the settings."""
        url = self.cleaned_data.get("apprise_url") or ""
        return {"service": service_name(url)} if url else dict(self.instance.settings)


FORMS: dict[ChannelKind, type[ChannelForm]] = {
    ChannelKind.MAIL: MailForm,
    ChannelKind.WEBHOOK: WebhookForm,
    ChannelKind.APPRISE: AppriseForm,
}
