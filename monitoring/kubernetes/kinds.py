"""The kinds of resources that Waymark knows: those of the Flink operator, of both Spark operators, and pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class ResourceKind:
    """A kind of resources. `group`: "" for those of Kubernetes itself. `name`: as people know it.

    `selector`: None if the source's label selector applies to the kind. `fields`: a field selector, "" for none.
    """

    group: str
    version: str
    plural: str
    name: str
    selector: str | None = None
    fields: str = ""
    is_namespaced: bool = True

    @property
    def key(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of the list in the namespace ("": all), or of one resource."""
        api = f"/apis/{self.group}" if self.group else "/api"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{api}/{self.version}{within}/{self.plural}{f'/{name}' if name else ''}"


_FLINK = ("flink.apache.org", "v1beta1")
FLINK_DEPLOYMENT = ResourceKind(*_FLINK, "flinkdeployments", "FlinkDeployment")
FLINK_SESSION_JOB = ResourceKind(*_FLINK, "flinksessionjobs", "FlinkSessionJob")
FLINK_SNAPSHOT = ResourceKind(*_FLINK, "flinkstatesnapshots", "FlinkStateSnapshot", selector="")
SPARK_OF_APACHE = ResourceKind("spark.apache.org", "v1", "sparkapplications", "SparkApplication (Apache)")
SPARK_OF_KUBEFLOW = ResourceKind("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication (Kubeflow)")
# Flink gives its pods these labels, with the deployment's name as `app`.
POD = ResourceKind("", "v1", "pods", "Pod", selector="app,component in (jobmanager,taskmanager)")
# Warnings of the Flink operator. Kubernetes deletes events after an hour.
EVENT = ResourceKind(
    "", "v1", "events", "Event", selector="", fields="involvedObject.apiVersion=flink.apache.org/v1beta1,type=Warning"
)
# A question to Kubernetes about the rights of the account. It stores nothing.
ACCESS_REVIEW = ResourceKind(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", is_namespaced=False
)
KINDS = (FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_SNAPSHOT, SPARK_OF_APACHE, SPARK_OF_KUBEFLOW, POD, EVENT)
# The kinds for which the Flink operator runs a job.
JOB_KINDS = {kind.key: kind for kind in (FLINK_DEPLOYMENT, FLINK_SESSION_JOB)}


def object_in(value: object) -> Json:
    """Return a JSON object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def text_in(entry: Json, name: str, longest: int = 1000) -> str:
    """Return a text of a JSON object, "" if there is none. Longer texts are cut off."""
    value = entry.get(name)
    return value.replace("\0", "")[:longest] if isinstance(value, str) else ""


def version_of(resource: object) -> str:
    """Return the resourceVersion of a resource, a list or a bookmark, "" if it has none."""
    return text_in(object_in(object_in(resource).get("metadata")), "resourceVersion", 200)
