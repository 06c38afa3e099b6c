"""The form of a source that finds clusters."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from dashboard.forms.editing import EditForm
from dashboard.language import rendered
from monitoring import outbound
from monitoring.discovery.sources import target
from monitoring.engine.errors import RequestNotSent
from monitoring.kubernetes.credentials import LARGEST, read_kubeconfig
from monitoring.models import AuditEntry, DiscoverySource
from monitoring.outbound import Denied
from monitoring.secret import Secret

if TYPE_CHECKING:
    SourceModelForm = forms.ModelForm[DiscoverySource]
else:
    SourceModelForm = forms.ModelForm

SECRETS = ("kubeconfig",)
MOST_NAMESPACES = 20
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SELECTOR = re.compile(r"[A-Za-z0-9._/=!,() -]*")
_PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
_KUBECONFIG = {"rows": "8", "class": "pem", "placeholder": "apiVersion: v1\nkind: Config\n…"}


class SecretTextarea(forms.Textarea):
    """A field of several lines whose content is never sent back to the page."""

    def format_value(self, value: Any) -> str:
        return ""


class DiscoveryForm(EditForm, SourceModelForm):
    unshown = SECRETS

    kubeconfig = forms.CharField(
        required=False,
        max_length=LARGEST,
        label=_("Kubeconfig"),
        widget=SecretTextarea(attrs=_PLAIN | _KUBECONFIG),
        help_text=_(
            "With a token or a certificate in it. Waymark runs no programs and reads no files that it names. The "
            "documentation has the command that prints it."
        ),
    )

    class Meta:
        model = DiscoverySource
        fields = (
            *("name", "in_cluster", "kubeconfig", "namespaces", "label_selector", "address_pattern"),
            *("may_change_resources", "enabled"),
        )
        widgets: ClassVar[dict[str, Any]] = {
            "name": forms.TextInput(attrs=_PLAIN),
            "namespaces": forms.TextInput(attrs=_PLAIN | {"placeholder": "payments, orders"}),
            "label_selector": forms.TextInput(attrs=_PLAIN | {"placeholder": "team=payments"}),
            "address_pattern": forms.TextInput(attrs=_PLAIN),
            "in_cluster": forms.CheckboxInput,
            "may_change_resources": forms.CheckboxInput,
            "enabled": forms.CheckboxInput,
        }
        labels: ClassVar[dict[str, Any]] = {
            "name": _("Name"),
            "in_cluster": _("Use the service account of the worker's pod"),
            "namespaces": _("Namespaces"),
            "label_selector": _("Label selector"),
            "address_pattern": _("Address of the REST APIs"),
            "may_change_resources": _("Restart and save jobs through the Flink operator"),
            "enabled": _("Find clusters"),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            "namespaces": _("At most 20, separated by commas. Empty: all namespaces."),
            "label_selector": _("As in Kubernetes. Empty: all resources."),
            "address_pattern": _(
                "With {name} and {namespace} of a Flink deployment, such as the address of an ingress."
            ),
            "may_change_resources": _(
                "Waymark changes the resources for that, and the operator does the rest. The account needs more rights."
            ),
        }

    def __init__(self, *args: Any, instance: DiscoverySource | None = None, **options: Any) -> None:
        instance = instance or DiscoverySource()
        super().__init__(*args, **options | {"instance": instance, "initial": {"kubeconfig": ""}})
        self._stored_kubeconfig: Secret = self.instance.kubeconfig
        if self._stored_kubeconfig:
            problem = self._stored_kubeconfig.problem()
            stored = _("A value is stored. Leave the field empty to keep it.")
            self.fields["kubeconfig"].help_text = rendered(problem) if problem else stored
        elif self.is_bound and self.data.get(self.add_prefix("kubeconfig")):
            again = _("Enter the secret again: Waymark does not send secrets to the page.")
            self.fields["kubeconfig"].help_text = again

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(action="discovery.change", target=target(self.instance))

    def stored_values(self) -> dict[str, object]:
        return super().stored_values() | {"kubeconfig": self._stored_kubeconfig}

    def clean_namespaces(self) -> str:
        found = [part.strip() for part in self.cleaned_data["namespaces"].split(",") if part.strip()]
        for part in found:
            if not _NAMESPACE.fullmatch(part):
                raise forms.ValidationError(_("%(part)s is not the name of a namespace.") % {"part": repr(part[:60])})
        if len(found) > MOST_NAMESPACES:
            raise forms.ValidationError(_("Enter at most 20 namespaces, or none for all."))
        return ",".join(dict.fromkeys(found))

    def clean_label_selector(self) -> str:
        text = str(self.cleaned_data["label_selector"]).strip()
        if not _SELECTOR.fullmatch(text):
            raise forms.ValidationError(_("Write a selector of Kubernetes, such as team=payments,env!=dev."))
        return text

    def clean_address_pattern(self) -> str:
        text = str(self.cleaned_data["address_pattern"]).strip().rstrip("/")
        if "{name}" not in text:
            raise forms.ValidationError(_("The address needs {name}, so that each deployment has another one."))
        target = outbound.parse(text.replace("{name}", "name").replace("{namespace}", "namespace"))
        if isinstance(target, Denied):
            raise forms.ValidationError(rendered(target.reason))
        if set("?#{}") & set(text.replace("{name}", "").replace("{namespace}", "")):
            raise forms.ValidationError(
                _("The address may contain {name} and {namespace}, but no other braces, ? or #.")
            )
        return text

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("in_cluster"):
            cleaned["kubeconfig"] = Secret()
        elif "kubeconfig" not in self.errors:
            self._clean_kubeconfig(cleaned)
        return cleaned

    def _clean_kubeconfig(self, cleaned: dict[str, Any]) -> None:
        text = str(cleaned.get("kubeconfig") or "").strip()
        if not text:
            cleaned["kubeconfig"] = self._stored_kubeconfig
            if not self._stored_kubeconfig:
                self.add_error("kubeconfig", _("Enter a kubeconfig, or use the service account of the worker's pod."))
            return
        try:
            read_kubeconfig(text)
        except RequestNotSent as error:
            self.add_error("kubeconfig", rendered(error.reason))
        cleaned["kubeconfig"] = Secret(text)
