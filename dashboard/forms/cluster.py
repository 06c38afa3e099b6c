"""The form for the address, authentication and polling of a cluster."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from checkpointing.model.refusals import Refused
from checkpointing.storage import StorageError, canonical
from dashboard.forms.choices import in_language
from dashboard.forms.secrets import SecretsForm
from dashboard.language import rendered
from monitoring import outbound
from monitoring.engine.connection import BadTls, Tls, trust
from monitoring.engine.examination import Now, Problem, examine
from monitoring.engine.probe import Found
from monitoring.models import (
    WATCHED_DISCOVERIES,
    AuditEntry,
    Authentication,
    Cluster,
    Discovery,
    ZooKeeperAuthentication,
)
from monitoring.outbound import Denied
from monitoring.reasons.refusals import reason_of
from monitoring.secret import Secret
from monitoring.state_roots import check_target, is_below

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    ClusterModelForm = forms.ModelForm[Cluster]
else:
    ClusterModelForm = forms.ModelForm

SECRETS = ("token", "password", "client_key", "zookeeper_password")
ZOOKEEPER = ("zookeeper_hosts", "zookeeper_root", "zookeeper_cluster_id")
_SERVER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_NODE = re.compile(r"/?[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/?")
_LABEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/-]{0,62})\s*=\s*([A-Za-z0-9._/@:-]{0,100})")
_SECONDS = _("Enter a number of seconds from {least} to {most}.")
_COUNT = _("Enter a number from {least} to {most}.")
_PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}


def _text(**attributes: str) -> forms.TextInput:
    return forms.TextInput(attrs=_PLAIN | attributes)


def _pem(kind: str) -> forms.Textarea:
    return forms.Textarea(attrs=_PLAIN | {"rows": "4", "class": "pem", "placeholder": f"-----BEGIN {kind}-----"})


def _number(
    label: StrOrPromise, invalid_text: StrOrPromise, least: int, most: int, help_text: StrOrPromise
) -> dict[str, Any]:
    """Return the options of a number field. `invalid_text` is the error text with {least} and {most}."""
    wrong = format_lazy(invalid_text, least=least, most=most)
    errors = dict.fromkeys(("invalid", "min_value", "max_value", "required"), wrong)
    return {
        "label": label,
        "min_value": least,
        "max_value": most,
        "help_text": help_text,
        "error_messages": errors,
        "widget": forms.TextInput(attrs=_PLAIN | {"inputmode": "decimal"}),
    }


class LabelsField(forms.CharField):
    """A field that converts labels such as `team=payments, env=prod` to a dictionary."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(f"{key}={text}" for key, text in value.items()) if isinstance(value, dict) else value

    def to_python(self, value: Any) -> Any:
        labels = {}
        for part in filter(None, (part.strip() for part in (super().to_python(value) or "").split(","))):
            written = _LABEL.fullmatch(part)
            if not written:
                raise forms.ValidationError(
                    _("%(part)s is not a label. Write labels as key=value, separated by commas.")
                    % {"part": repr(part[:60])}
                )
            labels[written[1]] = written[2]
        return labels

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != (initial or {}))
        except forms.ValidationError:
            return True


class ClusterForm(SecretsForm, ClusterModelForm):
    """The settings of a cluster. After validation, `examine` tests the connection to the cluster."""

    secrets = SECRETS
    sent = ("token", "password", "zookeeper_password")  # a private key is not sent
    unshown = (*SECRETS, "ca_bundle", "client_certificate")

    token = forms.CharField(required=False, max_length=4000, label=_("Token"), widget=forms.PasswordInput(attrs=_PLAIN))
    password = forms.CharField(
        required=False, max_length=1000, label=_("Password"), widget=forms.PasswordInput(attrs=_PLAIN), strip=False
    )
    zookeeper_password = forms.CharField(
        required=False, max_length=1000, label=_("Password"), widget=forms.PasswordInput(attrs=_PLAIN), strip=False
    )
    client_key = forms.CharField(required=False, max_length=20_000, label=_("Client key"), widget=_pem("PRIVATE KEY"))
    labels = LabelsField(
        required=False, max_length=1000, label=_("Labels"), widget=_text(placeholder="team=payments, env=prod")
    )
    poll_interval_s = forms.FloatField(
        **_number(
            *(_("Poll interval (seconds)"), _SECONDS, 1, 3600),
            _("Jobs with a shorter checkpoint interval are polled more often."),
        )
    )
    request_limit_s = forms.FloatField(
        **_number(_("Request timeout (seconds)"), _SECONDS, 1, 60, _("After this time, a request counts as failed."))
    )
    requests_at_once = forms.IntegerField(
        **_number(_("Max. concurrent requests"), _COUNT, 1, 64, _("A lower limit reduces the load on the cluster."))
    )
    savepoints_at_once = forms.IntegerField(
        **_number(
            *(_("Max. concurrent scheduled savepoints"), _COUNT, 1, 64),
            _("The others wait. The one that is due the longest is next."),
        )
    )
    savepoint_jitter_s = forms.IntegerField(
        **_number(
            *(_("Spread of scheduled savepoints (seconds)"), _SECONDS, 0, 3600),
            _("Savepoints that are due at the same time start within this time."),
        )
    )
    unanswered = forms.BooleanField(required=False, label=_("Save without a connection"), widget=forms.CheckboxInput)

    class Meta:
        model = Cluster
        fields = (
            *("name", "discovery", "rest_url", "history_server", "savepoint_target"),
            *("zookeeper_hosts", "zookeeper_root", "zookeeper_cluster_id"),
            *("zookeeper_authentication", "zookeeper_username", "zookeeper_password", "zookeeper_tls"),
            *("authentication", "token", "username", "password", "ca_bundle", "client_certificate", "client_key"),
            *("poll_interval_s", "request_limit_s", "requests_at_once", "labels"),
            *("savepoints_at_once", "savepoint_jitter_s"),
        )
        field_classes: ClassVar[dict[str, Any]] = {"rest_url": forms.CharField, "history_server": forms.CharField}
        widgets: ClassVar[dict[str, Any]] = {
            "name": _text(),
            "discovery": forms.RadioSelect,
            "rest_url": _text(inputmode="url", placeholder="http://flink.internal:8081"),
            "history_server": _text(inputmode="url", placeholder="http://history.internal:8082"),
            "savepoint_target": _text(inputmode="url", placeholder="s3://bucket/savepoints"),
            "zookeeper_hosts": _text(placeholder="zk1:2181,zk2:2181,zk3:2181"),
            "zookeeper_root": _text(placeholder="/flink"),
            "zookeeper_cluster_id": _text(placeholder="/default"),
            "zookeeper_authentication": forms.RadioSelect,
            "zookeeper_username": _text(),
            "authentication": forms.RadioSelect,
            "username": _text(),
            "ca_bundle": _pem("CERTIFICATE"),
            "client_certificate": _pem("CERTIFICATE"),
        }
        labels: ClassVar[dict[str, Any]] = {
            "name": _("Name"),
            "discovery": _("Discovery"),
            "rest_url": _("Address"),
            "history_server": _("History Server"),
            "savepoint_target": _("Directory for savepoints"),
            "zookeeper_hosts": _("ZooKeeper servers"),
            "zookeeper_root": _("Root path"),
            "zookeeper_cluster_id": _("Cluster ID"),
            "zookeeper_authentication": _("ZooKeeper authentication"),
            "zookeeper_username": _("User name"),
            "zookeeper_tls": _("Connect to ZooKeeper over TLS, with the certificates below"),
            "authentication": _("Authentication"),
            "username": _("User name"),
            "ca_bundle": _("Trusted CAs (CA bundle)"),
            "client_certificate": _("Client certificate"),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            "rest_url": _(
                "http:// or https://, host, port and optional path. For checkpoint locations: an absolute path, or an "
                "address such as s3://bucket/checkpoints."
            ),
            "history_server": _(
                "Optional, for Flink's application mode: where the end of a job can be read after its cluster has "
                "ended. Waymark uses the credentials and certificates of the cluster."
            ),
            "savepoint_target": _(
                "Empty: Waymark only watches the queries. Otherwise, it can copy their checkpoint locations to "
                "savepoints in this directory: an absolute path, or an address, outside of every watched directory."
            ),
            "zookeeper_hosts": _("Waymark reads the address of the leader from ZooKeeper and follows changes."),
            "zookeeper_root": _("high-availability.zookeeper.path.root"),
            "zookeeper_cluster_id": _("high-availability.cluster-id"),
            "ca_bundle": _("PEM. Empty: the CAs that this machine trusts."),
            "client_certificate": _("PEM, for mutual TLS. Empty: none."),
        }

    def __init__(self, *args: Any, instance: Cluster | None = None, **options: Any) -> None:
        instance = instance or Cluster()
        shown = {name: f"{getattr(instance, name):g}" for name in ("poll_interval_s", "request_limit_s")}
        initial = dict.fromkeys(SECRETS, "") | shown  # a page never contains stored secrets
        super().__init__(*args, **options | {"instance": instance, "initial": initial})
        for name in ("discovery", "authentication", "zookeeper_authentication"):
            field = self.fields[name]
            field.choices = in_language(field.choices)  # type: ignore[attr-defined]
        self.found: Found | None = None
        self.may_be_down = False
        self.fields["zookeeper_authentication"].required = False  # a missing value means no authentication
        for name in ("zookeeper_root", "zookeeper_cluster_id"):
            self.fields[name].widget.attrs["maxlength"] = "200"

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(action="cluster.change", target=f"cluster {self.initial.get('name')}")

    def stored_values(self) -> dict[str, object]:
        values = super().stored_values()
        if self.initial.get("discovery") == Discovery.ZOOKEEPER:
            values["rest_url"] = ""  # the address of the leader, which no person has entered
        return values

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"]).strip()
        if Cluster.objects.filter(name=name, archived_at__isnull=False).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError(
                _("A removed cluster has this name. Add that cluster again, or choose another name.")
            )
        return name

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("discovery") == Discovery.ZOOKEEPER:
            self._clean_zookeeper(cleaned)
        else:
            self._clean_address(cleaned)
        self._clean_target(cleaned)
        self._clean_history_server(cleaned)
        if cleaned.get("discovery") in WATCHED_DISCOVERIES:
            # The credentials for storage belong into fsspec's configuration, and reports have tokens of Waymark.
            cleaned |= {"authentication": Authentication.NONE, "ca_bundle": "", "client_certificate": ""}
            cleaned["client_key"] = Secret()
        self._clean_zookeeper_authentication(cleaned)
        self.clean_authentication_fields(cleaned)
        self._clean_tls(cleaned)
        return cleaned

    def examine(self, now: Now) -> bool:
        """Test the connection, and return whether the settings may be saved. If not, add an error to a field.

        The test takes some seconds if the server does not respond.
        """
        outcome = examine(self.instance, now)
        if isinstance(outcome, Problem):
            self.may_be_down = outcome.passing
            if not (outcome.passing and self.cleaned_data.get("unanswered")):
                self.add_error(outcome.field if outcome.field in self.fields else None, rendered(outcome.reason))
                return False
            return True
        self.found = outcome
        return True

    def _clean_address(self, cleaned: dict[str, Any]) -> None:
        cleaned |= {"zookeeper_hosts": "", "zookeeper_root": "", "zookeeper_cluster_id": "", "zookeeper_tls": False}
        cleaned["zookeeper_authentication"] = ZooKeeperAuthentication.NONE
        url = (cleaned.get("rest_url") or "").strip()
        if cleaned.get("discovery") == Discovery.AGENT:
            self.errors.pop("rest_url", None)
            cleaned["rest_url"] = ""
            return
        if "rest_url" in self.errors:
            return
        if cleaned.get("discovery") in (Discovery.DIRECTORY, Discovery.EVENT_LOG):
            self._clean_directory(cleaned, url)
            return
        self._clean_url(cleaned, "rest_url", url)

    def _clean_history_server(self, cleaned: dict[str, Any]) -> None:
        url = (cleaned.get("history_server") or "").strip()
        if cleaned.get("discovery") in WATCHED_DISCOVERIES:
            self.errors.pop("history_server", None)
            url = ""
        cleaned["history_server"] = url
        if url:
            self._clean_url(cleaned, "history_server", url)

    def _clean_url(self, cleaned: dict[str, Any], name: str, url: str) -> None:
        target = outbound.parse(url)
        if isinstance(target, Denied):
            self.add_error(name, rendered(target.reason))
        elif "?" in url or "#" in url:
            self.add_error(name, _("The URL of a REST API cannot contain ? or #."))
        cleaned[name] = url.rstrip("/")

    def _clean_directory(self, cleaned: dict[str, Any], location: str) -> None:
        try:
            cleaned["rest_url"] = canonical(location)
        except StorageError as error:
            self.add_error("rest_url", rendered(reason_of(error)))

    def _clean_target(self, cleaned: dict[str, Any]) -> None:
        """Validate the directory for savepoints. No watched directory may contain such a directory."""
        target = (cleaned.get("savepoint_target") or "").strip()
        if cleaned.get("discovery") != Discovery.DIRECTORY:
            self.errors.pop("savepoint_target", None)
            cleaned["savepoint_target"] = ""
            return
        watched = Cluster.objects.filter(discovery=Discovery.DIRECTORY, archived_at=None).exclude(pk=self.instance.pk)
        root = cleaned.get("rest_url") or ""
        try:
            if target:
                cleaned["savepoint_target"] = canonical(target)
                check_target(cleaned["savepoint_target"], [root, *watched.values_list("rest_url", flat=True)])
        except (StorageError, Refused) as error:
            self.add_error("savepoint_target", rendered(reason_of(error)))
        for other in watched.exclude(savepoint_target="").values_list("savepoint_target", flat=True):
            if root and is_below(other, root):
                text = _("This directory contains %(target)s, where Waymark stores savepoints of another cluster.")
                self.add_error("rest_url", text % {"target": other})

    def _clean_zookeeper(self, cleaned: dict[str, Any]) -> None:
        """Validate the ZooKeeper settings. The last known address of the leader stays until ZooKeeper names another."""
        cleaned["rest_url"] = self.initial.get("rest_url", "") if self.instance.pk else ""
        self.errors.pop("rest_url", None)
        hosts = [host.strip() for host in (cleaned.get("zookeeper_hosts") or "").split(",") if host.strip()]
        wrong = [host for host in hosts if not (m := _SERVER.fullmatch(host)) or not 0 < int(m[2]) < 65_536]
        if not hosts or wrong:
            invalid_text = (
                _("%(host)s is not a server. Write servers as host:port, separated by commas.")
                if wrong
                else _("Enter at least one server as host:port. Separate servers by commas.")
            )
            self.add_error("zookeeper_hosts", invalid_text % {"host": repr("".join(wrong[:1])[:80])})
        cleaned["zookeeper_hosts"] = ",".join(hosts)
        for name, usual in (("zookeeper_root", "/flink"), ("zookeeper_cluster_id", "/default")):
            cleaned[name] = (cleaned.get(name) or "").strip() or usual
            if not _NODE.fullmatch(cleaned[name]):
                self.add_error(
                    name,
                    _("%(cleaned)s is not a ZooKeeper path. Write it like %(usual)s.")
                    % {"cleaned": repr(cleaned[name][:80]), "usual": usual},
                )

    def _clean_zookeeper_authentication(self, cleaned: dict[str, Any]) -> None:
        if "zookeeper_authentication" in self.errors:
            return
        cleaned["zookeeper_authentication"] = cleaned.get("zookeeper_authentication") or ZooKeeperAuthentication.NONE
        if cleaned["zookeeper_authentication"] == ZooKeeperAuthentication.NONE:
            cleaned |= {"zookeeper_username": "", "zookeeper_password": Secret()}
            return
        if not cleaned.get("zookeeper_username"):
            self.add_error("zookeeper_username", _("Enter a user name."))
        elif ":" in cleaned["zookeeper_username"]:
            self.add_error("zookeeper_username", _("A user name cannot contain a colon."))
        self.keep_stored_secret(cleaned, "zookeeper_password", needed=True, missing=_("Enter a password."))

    def _clean_tls(self, cleaned: dict[str, Any]) -> None:
        if not cleaned.get("client_certificate") and not cleaned.get("client_key"):
            cleaned["client_key"] = Secret()
        else:
            self.keep_stored_secret(cleaned, "client_key", needed=False, missing="")
        key = cleaned.get("client_key")
        if isinstance(key, Secret) and (problem := key.problem()):
            self.add_error("client_key", rendered(problem))
            return
        plain = key.reveal() if isinstance(key, Secret) else str(key or "")
        try:
            trust(Tls(cleaned.get("ca_bundle") or "", cleaned.get("client_certificate") or "", plain))
        except BadTls as error:
            self.add_error(error.field, rendered(error.reason))

    def names_other_server(self, cleaned: dict[str, Any]) -> bool:
        history_server = cleaned.get("history_server", "")
        if history_server and history_server != self.initial.get("history_server", ""):
            return True
        if cleaned.get("discovery") == Discovery.ZOOKEEPER:
            return any(cleaned.get(name) != self.initial.get(name) for name in (*ZOOKEEPER, "discovery"))
        before = outbound.parse(self.initial.get("rest_url", ""))
        return self.initial.get("discovery") != Discovery.URL or outbound.parse(cleaned.get("rest_url", "")) != before
