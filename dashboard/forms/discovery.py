"""The form of a source that finds clusters. Only the fields of its kind count."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from dashboard.forms.choices import in_language
from dashboard.forms.secrets import SecretsForm
from dashboard.language import rendered
from monitoring import outbound
from monitoring.discovery.sources import target
from monitoring.engine.connection import BadTls, Tls, trust
from monitoring.engine.errors import RequestNotSent
from monitoring.kubernetes.credentials import LARGEST, read_kubeconfig
from monitoring.models import AuditEntry, Authentication, DiscoverySource, SourceKind
from monitoring.outbound import Denied
from monitoring.secret import Secret

if TYPE_CHECKING:
    SourceModelForm = forms.ModelForm[DiscoverySource]
else:
    SourceModelForm = forms.ModelForm

SECRETS = ("kubeconfig", "token", "password")
MOST_NAMESPACES = 20
MOST_ADDRESSES = 10
_FIELDS = {
    SourceKind.KUBERNETES: ("in_cluster", "kubeconfig", "namespaces", "label_selector", "may_change_resources"),
    SourceKind.YARN: (
        *("addresses", "authentication", "token", "username", "password", "ca_bundle"),
        *("queues", "users", "application_tags"),
    ),
}
_PLACES = {SourceKind.KUBERNETES: ("{name}", "{namespace}"), SourceKind.YARN: ("{address}", "{id}")}
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SELECTOR = re.compile(r"[A-Za-z0-9._/=!,() -]*")
_PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
_KUBECONFIG = {"rows": "8", "class": "pem", "placeholder": "apiVersion: v1\nkind: Config\n…"}
_CERTIFICATE = {"rows": "4", "class": "pem", "placeholder": "-----BEGIN CERTIFICATE-----"}
_PATTERN_OF_KUBERNETES = _(
    "With {name} and {namespace} of a Flink deployment, such as the address of an ingress. Empty: the service that the "
    "operator creates, http://{name}-rest.{namespace}:8081."
)
_PATTERN_OF_YARN = _(
    "Empty: the application master itself, http://{address}. Waymark cannot take savepoints through the proxy of YARN, "
    "http://yarn:8088/proxy/{id}."
)


class SecretTextarea(forms.Textarea):
    """A field of several lines whose content is never sent back to the page."""

    def format_value(self, value: Any) -> str:
        return ""


def _text(placeholder: str = "") -> forms.TextInput:
    return forms.TextInput(attrs=_PLAIN | ({"placeholder": placeholder} if placeholder else {}))


class DiscoveryForm(SecretsForm, SourceModelForm):
    secrets = SECRETS
    sent = ("token", "password")
    unshown = (*SECRETS, "ca_bundle")

    kind = forms.ChoiceField(choices=SourceKind.choices, label=_("Kind"), required=False, widget=forms.RadioSelect)
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
    token = forms.CharField(required=False, max_length=4000, label=_("Token"), widget=forms.PasswordInput(attrs=_PLAIN))
    password = forms.CharField(
        required=False, max_length=1000, label=_("Password"), widget=forms.PasswordInput(attrs=_PLAIN), strip=False
    )
    address_pattern = forms.CharField(
        required=False, max_length=300, label=_("Address of the REST APIs"), widget=_text()
    )

    class Meta:
        model = DiscoverySource
        fields = ("name", "kind", *_FIELDS[SourceKind.KUBERNETES], *_FIELDS[SourceKind.YARN])
        fields = (*fields, "address_pattern", "enabled")
        widgets: ClassVar[dict[str, Any]] = {
            "name": _text(),
            "namespaces": _text("payments, orders"),
            "label_selector": _text("team=payments"),
            "addresses": _text("http://rm1.example.com:8088, http://rm2.example.com:8088"),
            "authentication": forms.RadioSelect,
            "username": _text(),
            "ca_bundle": forms.Textarea(attrs=_PLAIN | _CERTIFICATE),
            "queues": _text("root.prod, root.payments"),
            "users": _text("flink"),
            "application_tags": _text("team:payments"),
            "in_cluster": forms.CheckboxInput,
            "may_change_resources": forms.CheckboxInput,
            "enabled": forms.CheckboxInput,
        }
        labels: ClassVar[dict[str, Any]] = {
            "name": _("Name"),
            "in_cluster": _("Use the service account of the worker's pod"),
            "namespaces": _("Namespaces"),
            "label_selector": _("Label selector"),
            "may_change_resources": _("Restart and save jobs through the Flink operator"),
            "addresses": _("Addresses of the ResourceManagers"),
            "authentication": _("Authentication"),
            "username": _("User name"),
            "ca_bundle": _("Trusted CAs (CA bundle)"),
            "queues": _("Queues"),
            "users": _("Users"),
            "application_tags": _("Application tags"),
            "enabled": _("Find clusters"),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            "namespaces": _("At most 20, separated by commas. Empty: all namespaces."),
            "label_selector": _("As in Kubernetes. Empty: all resources."),
            "may_change_resources": _(
                "Waymark changes the resources for that, and the operator does the rest. The account needs more rights."
            ),
            "addresses": _("http:// or https://, separated by commas. With high availability, enter all of them."),
            "ca_bundle": _("PEM. Empty: the CAs that this machine trusts."),
            "queues": _("Separated by commas, with the queues below them. Empty: all queues."),
            "users": _("Separated by commas. Empty: all users."),
            "application_tags": _("Separated by commas. One of them is enough. Empty: all applications."),
        }

    def __init__(self, *args: Any, instance: DiscoverySource | None = None, **options: Any) -> None:
        instance = instance or DiscoverySource()
        initial = dict.fromkeys(SECRETS, "")  # a page never contains stored secrets
        if instance.address_pattern == SourceKind(instance.kind).usual_pattern:
            initial["address_pattern"] = ""
        super().__init__(*args, **options | {"instance": instance, "initial": initial})
        for name in ("kind", "authentication"):
            field = self.fields[name]
            field.choices = in_language(field.choices)  # type: ignore[attr-defined]
        self.fields["authentication"].required = False  # a missing value means no authentication
        self.fields["address_pattern"].help_text = format_html(
            '<span class="of-kubernetes">{}</span><span class="of-yarn">{}</span>',
            _PATTERN_OF_KUBERNETES,
            _PATTERN_OF_YARN,
        )

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(action="discovery.change", target=target(self.instance))

    def names_other_server(self, cleaned: dict[str, Any]) -> bool:
        known = {outbound.parse(url) for url in self.initial.get("addresses", "").split(",")}
        return any(outbound.parse(url) not in known for url in cleaned.get("addresses", "").split(","))

    def clean_kind(self) -> str:
        """Return the kind. That of a stored source stays, because what it has found depends on it."""
        kind = self.cleaned_data["kind"] or self.instance.kind
        if self.instance.pk and kind != self.instance.kind:
            raise forms.ValidationError(_("A source keeps its kind. Add another source."))
        return str(kind)

    def clean_namespaces(self) -> str:
        found = _parts(self.cleaned_data["namespaces"])
        for part in found:
            if not _NAMESPACE.fullmatch(part):
                raise forms.ValidationError(_("%(part)s is not the name of a namespace.") % {"part": repr(part[:60])})
        if len(found) > MOST_NAMESPACES:
            raise forms.ValidationError(_("Enter at most 20 namespaces, or none for all."))
        return ",".join(found)

    def clean_label_selector(self) -> str:
        text = str(self.cleaned_data["label_selector"]).strip()
        if not _SELECTOR.fullmatch(text):
            raise forms.ValidationError(_("Write a selector of Kubernetes, such as team=payments,env!=dev."))
        return text

    def clean_addresses(self) -> str:
        found = [part.rstrip("/") for part in _parts(self.cleaned_data["addresses"])]
        for part in found:
            server = outbound.parse(part)
            if isinstance(server, Denied):
                raise forms.ValidationError(rendered(server.reason))
            if "?" in part or "#" in part:
                raise forms.ValidationError(_("The URL of a REST API cannot contain ? or #."))
        if len(found) > MOST_ADDRESSES:
            raise forms.ValidationError(_("Enter at most 10 addresses."))
        return ",".join(found)

    def clean_queues(self) -> str:
        return ",".join(_parts(self.cleaned_data["queues"]))

    def clean_users(self) -> str:
        return ",".join(_parts(self.cleaned_data["users"]))

    def clean_application_tags(self) -> str:
        return ",".join(_parts(self.cleaned_data["application_tags"]))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        kind = cleaned.get("kind")
        for other in SourceKind:
            if other != kind:
                self._clear(cleaned, _FIELDS[other])
        if kind is None:  # a wrong one
            return cleaned
        if kind == SourceKind.YARN:
            self._clean_yarn(cleaned)
        else:
            self._clean_kubernetes(cleaned)
        if "address_pattern" not in self.errors:
            self._clean_pattern(cleaned, SourceKind(kind))
        return cleaned

    def _clear(self, cleaned: dict[str, Any], names: Collection[str]) -> None:
        """Empty the fields of another kind, whatever is entered there."""
        blank = DiscoverySource()
        for name in names:
            self.errors.pop(name, None)
            cleaned[name] = getattr(blank, name)

    def _clean_kubernetes(self, cleaned: dict[str, Any]) -> None:
        if cleaned.get("in_cluster"):
            self.errors.pop("kubeconfig", None)
            cleaned["kubeconfig"] = Secret()
        elif "kubeconfig" not in self.errors:
            missing = _("Enter a kubeconfig, or use the service account of the worker's pod.")
            cleaned["kubeconfig"] = str(cleaned.get("kubeconfig") or "").strip()
            self.keep_stored_secret(cleaned, "kubeconfig", needed=True, missing=missing)
        text = cleaned.get("kubeconfig")
        if isinstance(text, str) and text:
            cleaned["kubeconfig"] = Secret(text)
            try:
                read_kubeconfig(text)
            except RequestNotSent as error:
                self.add_error("kubeconfig", rendered(error.reason))

    def _clean_yarn(self, cleaned: dict[str, Any]) -> None:
        cleaned["authentication"] = cleaned.get("authentication") or Authentication.NONE
        if not cleaned.get("addresses") and "addresses" not in self.errors:
            self.add_error("addresses", _("Enter the address of a ResourceManager."))
        self.clean_authentication_fields(cleaned)
        try:
            trust(Tls(cleaned.get("ca_bundle") or ""))
        except BadTls as error:
            self.add_error(error.field, rendered(error.reason))

    def _clean_pattern(self, cleaned: dict[str, Any], kind: SourceKind) -> None:
        text = str(cleaned.get("address_pattern") or "").strip().rstrip("/") or kind.usual_pattern
        places = _PLACES[kind]
        filled, rest = text, text
        for place in places:
            filled = filled.replace(place, "name:80" if place == "{address}" else "name")
            rest = rest.replace(place, "")
        cleaned["address_pattern"] = text
        server = outbound.parse(filled)
        if kind == SourceKind.KUBERNETES and "{name}" not in text:
            self.add_error("address_pattern", _("The address needs {name}, so that each deployment has another one."))
        elif kind == SourceKind.YARN and rest == text:
            needed = _("The address needs {address} or {id}, so that each application has another one.")
            self.add_error("address_pattern", needed)
        elif isinstance(server, Denied):
            self.add_error("address_pattern", rendered(server.reason))
        elif set("?#{}") & set(rest):
            message = _("The address may contain %(places)s, but no other braces, ? or #.")
            self.add_error("address_pattern", message % {"places": " ".join(places)})


def _parts(text: str) -> list[str]:
    """Return the parts between commas, each once."""
    return list(dict.fromkeys(part.strip() for part in str(text).split(",") if part.strip()))
