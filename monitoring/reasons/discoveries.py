"""Reasons about clusters that Waymark finds by itself, in Kubernetes and YARN."""

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
        _("Waymark does not run in a pod with a service account. Enter a kubeconfig."),
    )
    EXTRA_MISSING = (
        "discoveries.extra-missing",
        _("The extra kubernetes is not installed on this machine: uv pip install -r pyproject.toml --extra kubernetes"),
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
    RESOURCE_MISSING = "discoveries.resource-missing", _("Kubernetes has no {resource}.")
    CHANGED_MEANWHILE = "discoveries.changed-meanwhile", _("The resource was changed at the same moment.")
    NOT_A_RESOURCE = "discoveries.not-a-resource", _("The answer to {path} is not a Kubernetes resource.")
    NOT_A_LIST = "discoveries.not-a-list", _("The answer to {path} is not a list of Kubernetes resources.")
    NOT_A_CHANGE = "discoveries.not-a-change", _("The answer to {path} contains a line that is not a change.")
    TOO_MANY = "discoveries.too-many", _("There are more than {most:,} resources {resource}. Select fewer of them.")
    TOO_MANY_PAGES = "discoveries.too-many-pages", _("The list {path} has more than {most:,} pages.")
    UNREADABLE = (
        "discoveries.unreadable",
        _("{count} of the resources {resource} cannot be read, for example {name!r}."),
    )

    # Why the operator was not asked to restart a job.
    CREATED_AGAIN = "discoveries.created-again", _("{resource} was deleted and created again since then.")
    RESTARTED_LATER = "discoveries.restarted-later", _("A later restart of {resource} was requested.")
    OTHER_JOB = (
        "discoveries.other-job",
        _("The operator runs another job for {resource} now ({job}), so somebody else has restarted it."),
    )
    PROGRAM_CHANGED = (
        "discoveries.program-changed",
        _("{resource} has other values of {fields} now, so somebody else has changed its program."),
    )
    UPGRADE_WITHOUT_STATE = (
        "discoveries.upgrade-without-state",
        _("The upgradeMode of {resource} is stateless: restarted by the operator, the job would lose its state."),
    )

    # The answers of YARN.
    STANDBY = (
        "discoveries.standby",
        _("{url} is a ResourceManager on standby. Add the address of the active one: {active}."),
    )
    NONE_ACTIVE = "discoveries.none-active", _("{url} says that no ResourceManager is active.")
    KERBEROS = (
        "discoveries.kerberos",
        _("{url} requires Kerberos. Enter the address of a gateway with a password, such as Apache Knox."),
    )
    NO_APPLICATIONS = "discoveries.no-applications", _("The answer to {path} is not a list of YARN applications.")
    NOT_VISIBLE = (
        "discoveries.not-visible",
        _("YARN does not show this application to the account. Give the account the right to view applications."),
    )
    NO_MASTER_ADDRESS = (
        "discoveries.no-master-address",
        _("YARN does not report the address of the application master. Enter an address pattern with the id."),
    )
    YARN_STATE = "discoveries.yarn-state", _("YARN reports {status}.")
    YARN_TEXT = "discoveries.yarn-text", _("YARN reports {status}: {text}")

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
    APPLICATION_GONE = (
        "discoveries.application-gone",
        _("The application {deployment} has ended, or is no longer listed in {source}."),
    )
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
