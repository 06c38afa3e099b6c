"""Sources that find clusters by themselves, such as Kubernetes, and what they have found."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.clusters import Cluster
from monitoring.models.secret_field import SecretField
from monitoring.reasons.columns import ReasonField


class SourceKind(models.TextChoices):
    KUBERNETES = "kubernetes", _("Kubernetes")


class DiscoverySource(models.Model):
    """A server that knows Flink clusters. A worker that reads it holds a lease, `claimed_until`, and a token.

    `in_cluster`: the credentials are the service account that Kubernetes mounts into the worker's pod. Otherwise they
    are in `kubeconfig`. `namespaces`: separated by commas, "" for all. `address_pattern`: the address of the REST API
    of a deployment, with {name} and {namespace}.
    """

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=SourceKind.choices, default=SourceKind.KUBERNETES)
    in_cluster = models.BooleanField(default=False)
    kubeconfig = SecretField()
    namespaces = models.CharField(max_length=1500, blank=True, default="")
    label_selector = models.CharField(max_length=500, blank=True, default="")
    address_pattern = models.CharField(max_length=300, default="http://{name}-rest.{namespace}:8081")
    # Waymark may change the resources that it has found: it restarts and saves jobs through their operator.
    may_change_resources = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
    next_look_at = models.DateTimeField(null=True, db_index=True)
    claimed_until = models.DateTimeField(null=True)
    claimed_by = models.CharField(max_length=32, blank=True, default="")
    last_answer_at = models.DateTimeField(null=True)
    last_error = models.TextField(blank=True, default="")
    last_error_value = ReasonField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def namespace_list(self) -> list[str]:
        """Return the namespaces to read; [""] for all."""
        return self.namespaces.split(",")


class WatchedKind(models.Model):
    """How far the changes of a kind of resources in a namespace ("": all) are applied.

    `version` is Kubernetes' resourceVersion; "": the resources have to be listed. `kind` is the plural name with its
    group, such as flinkdeployments.flink.apache.org.
    """

    source = models.ForeignKey(DiscoverySource, on_delete=models.CASCADE, related_name="watched_kinds")
    kind = models.CharField(max_length=100)
    namespace = models.CharField(max_length=63, blank=True, default="")
    version = models.CharField(max_length=200, blank=True, default="")
    listed_at = models.DateTimeField(null=True)
    problem = models.TextField(blank=True, default="")
    problem_value = ReasonField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("source", "kind", "namespace"), name="one_progress_per_watched_kind"),
        )

    def __str__(self) -> str:
        return f"{self.kind} in {self.namespace or 'all namespaces'}"


class FoundResource(models.Model):
    """A resource that a source has found, and the cluster that Waymark watches because of it, if there is one.

    `uid` differs between a resource and another one that is created later under its name. `deployment`: the name of
    the Flink deployment that the resource belongs to, "" if it belongs to none. `state`: what its operator reports.
    `given`: the values that discovery last wrote to the cluster, so that a person's changes are recognized.
    """

    source = models.ForeignKey(DiscoverySource, on_delete=models.CASCADE, related_name="found_resources")
    kind = models.CharField(max_length=100)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64, blank=True, default="")
    version = models.CharField(max_length=200, blank=True, default="")
    labels = models.JSONField(default=dict)
    rest_url = models.CharField(max_length=500, blank=True, default="")
    deployment = models.CharField(max_length=253, blank=True, default="")
    state = models.JSONField(default=dict)
    problem = models.TextField(blank=True, default="")
    problem_value = ReasonField(null=True, blank=True)
    problem_since = models.DateTimeField(null=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.SET_NULL, null=True, related_name="found_resources")
    given = models.JSONField(default=dict)
    found_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("namespace", "name")
        constraints = (
            models.UniqueConstraint(fields=("source", "kind", "namespace", "name"), name="one_row_per_found_resource"),
        )
        indexes = (models.Index(fields=("source", "namespace", "deployment"), name="found_for_a_deployment"),)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
