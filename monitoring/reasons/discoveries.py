"""Reasons about clusters that Waymark finds by itself, and about the resources of Kubernetes."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode


class DiscoveryReason(ReasonCode):
    # The kubeconfig.
    NOT_YAML = "discoveries.not-yaml", _("The kubeconfig is not a YAML mapping.")
    TOO_LARGE = "discoveries.too-large", _("The kubeconfig has {size:,} bytes, but at most {most:,} are allowed.")
    FIELD_REFUSED = (
        "discoveries.field-refused",
        _("The kubeconfig has {field}. Waymark allows only {allowed} there."),
    )
    FIELD_MISSING = "discoveries.field-missing", _("The kubeconfig has no {field}.")
    NOT_NAMED = "discoveries.not-named", _("The kubeconfig has no entry {name!r} in {field}.")
    NOT_A_TEXT = "discoveries.not-a-text", _("{field} in the kubeconfig is not a text.")
    NOT_BASE64 = "discoveries.not-base64", _("{field} in the kubeconfig is not a PEM file in base64.")
    BAD_TLS = "discoveries.bad-tls", _("The certificates in the kubeconfig cannot be used. {why}")
    IN_NO_CLUSTER = (
        "discoveries.in-no-cluster",
        _("The worker does not run in a pod with a service account. Enter a kubeconfig."),
    )

    # The answers of the API.
    LOG_IN_REFUSED = "discoveries.log-in-refused", _("{url} does not accept the credentials (HTTP 401).")
    FORBIDDEN = "discoveries.forbidden", _("The account may not {verb} {resource} in {where}.")
    IN_NAMESPACE = "discoveries.in-namespace", _("the namespace {namespace}")
    IN_ALL_NAMESPACES = "discoveries.in-all-namespaces", _("all namespaces")
    NOT_INSTALLED = (
        "discoveries.not-installed",
        _("Kubernetes has no resources {resource}: its operator is not installed."),
    )
    SERVER_ERROR = "discoveries.server-error", _("{url} answers {path} with HTTP {status}. {message}")
    VERSION_GONE = (
        "discoveries.version-gone",
        _("Kubernetes no longer has the changes since the last one that was read."),
    )
    NOT_A_LIST = "discoveries.not-a-list", _("The answer to {path} is not a list of Kubernetes resources.")
    NOT_A_CHANGE = "discoveries.not-a-change", _("The answer to {path} contains a line that is not a change.")
    TOO_MANY = "discoveries.too-many", _("There are more than {most:,} resources {resource}. Select fewer of them.")
    TOO_MANY_PAGES = "discoveries.too-many-pages", _("The list {path} has more than {most:,} pages.")
    UNREADABLE = (
        "discoveries.unreadable",
        _("{count} of the resources {resource} cannot be read, for example {name!r}."),
    )

    # What operators report.
    OPERATOR_ERROR = "discoveries.operator-error", _("The operator reports: {error}")
    OPERATOR_STATE = "discoveries.operator-state", _("The operator reports the state {state}.")
    JOB_ENDED = "discoveries.job-ended", _("{source} reports the job of {resource} as {state}.")
    POD = "discoveries.pod", _("Kubernetes reports {reason} for the pod.")
    POD_TROUBLE = "discoveries.pod-trouble", _("Kubernetes reports {reason} for the pod: {message}")

    # Clusters.
    FOUND = "discoveries.found", _("{source} has found the deployment {deployment}.")
    DEPLOYMENT_GONE = "discoveries.deployment-gone", _("The deployment {deployment} was deleted in {source}.")
    DEPLOYMENT_BACK = "discoveries.deployment-back", _("The deployment {deployment} exists again in {source}.")
    ADDRESS_TAKEN = (
        "discoveries.address-taken",
        _("The cluster {cluster} already has the address {url}. Enter another address pattern for this source."),
    )

    SNAPSHOT_DELETED = (
        "discoveries.snapshot-deleted",
        _("The resource {snapshot} was deleted, and the operator deletes the files of the savepoint with it."),
    )

    # Reports.
    CHANGES = "discoveries.changes", _("{source}: {changes}.")
    ADDED = "discoveries.added", ngettext("{count} cluster added", "{count} clusters added", "count")
    CHANGED = "discoveries.changed", ngettext("{count} cluster changed", "{count} clusters changed", "count")
    ARCHIVED = "discoveries.archived", ngettext("{count} cluster removed", "{count} clusters removed", "count")
    RESTORED = "discoveries.restored", ngettext("{count} cluster restored", "{count} clusters restored", "count")
