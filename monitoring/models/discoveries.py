"""Sources that find clusters by themselves, Kubernetes and YARN, and what they have found."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.clusters import Authentication, Cluster
from monitoring.models.secret_field import SecretField
from monitoring.reasons.columns import ReasonField


class SourceKind(models.TextChoices):
    KUBERNETES = "kubernetes", _("Kubernetes")
    YARN = "yarn", _("YARN")

    @property
    def usual_pattern(self) -> str:
        """Return the address pattern of a source that has no other."""
        return "http://{address}" if self is SourceKind.YARN else "http://{name}-rest.{namespace}:8081"


class DiscoverySource(models.Model):
    """A server that knows Flink clusters. A worker that reads it holds a lease, `claimed_until`, and a token.

    Texts with several values have commas between them, and "" selects all.

    Kubernetes: `in_cluster` means that the credentials are the service account that Kubernetes mounts into the worker's
    pod. Otherwise they are in `kubeconfig`. `address_pattern` is the address of the REST API of a deployment, with
    {name} and {namespace}.

    YARN: `addresses` are those of all ResourceManagers, of which one is active. `address_pattern` has {address}, which
    is the host and the port of the application master, or {id}, which is the id of the application.
    """

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=SourceKind.choices, default=SourceKind.KUBERNETES)
    in_cluster = models.BooleanField(default=False)
    kubeconfig = SecretField()
    namespaces = models.CharField(max_length=1500, blank=True, default="")
    label_selector = models.CharField(max_length=500, blank=True, default="")
    addresses = models.CharField(max_length=1500, blank=True, default="")
    authentication = models.CharField(max_length=10, choices=Authentication.choices, default=Authentication.NONE)
    token = SecretField()
    username = models.CharField(max_length=200, blank=True, default="")
    password = SecretField()
    ca_bundle = models.TextField(blank=True, default="")
    queues = models.CharField(max_length=1500, blank=True, default="")
    users = models.CharField(max_length=1500, blank=True, default="")
    application_tags = models.CharField(max_length=1500, blank=True, default="")
    address_pattern = models.CharField(max_length=300, default=SourceKind.KUBERNETES.usual_pattern)
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
    def restarts_jobs(self) -> bool:
        """Whether Waymark may restart and save jobs through the operator of their resources."""
        return self.enabled and self.may_change_resources

    @property
    def namespace_list(self) -> list[str]:
        """Return the namespaces to read; [""] for all."""
        return self.namespaces.split(",")

    @property
    def address_list(self) -> list[str]:
        """Return the addresses of the ResourceManagers."""
        return self.addresses.split(",") if self.addresses else []

    @property
    def queue_list(self) -> list[str]:
        """Return the queues to read; [] for all."""
        return self.queues.split(",") if self.queues else []

    @property
    def user_list(self) -> list[str]:
        """Return the users whose applications to read; [] for all."""
        return self.users.split(",") if self.users else []


class WatchedKind(models.Model):
    """How far the changes of a kind of resources in a namespace ("": all) are applied.

    `version` is Kubernetes' resourceVersion; "": the resources have to be listed. `kind` is the plural name with its
    group, such as flinkdeployments.flink.apache.org. A source of YARN has one row, without a version.
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

    `uid` differs between a resource and another one that is created later under its name. For YARN, it is the id of the
    application, and the namespace is its queue. `deployment`: the name of the Flink deployment that the resource
    belongs to, "" if it belongs to none. `state`: what its operator or YARN reports (see yarn.applications).
    `given`: the values that discovery last wrote to the cluster, so that a person's changes are recognized.
    """

    source = models.ForeignKey(DiscoverySource, on_delete=models.CASCADE, related_name="found_resources")
    kind = models.CharField(max_length=100)
    namespace = models.CharField(max_length=253)
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
