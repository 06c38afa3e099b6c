"""Reads the settings of the driver's pod from a job's configuration, under the names of Spark on Kubernetes. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from checkpointing.jobs.launching.admission import Demand
from checkpointing.jobs.launching.control_groups import LIMIT, limit_of
from checkpointing.jobs.launching.demand import FACTOR, heap_and_overhead, requested_memory
from checkpointing.model.configuration import InvalidConfiguration

_K8S = "spark.kubernetes."
NAMESPACE = f"{_K8S}namespace"
IMAGE = f"{_K8S}container.image"
SERVICE_ACCOUNT = f"{_K8S}authenticate.driver.serviceAccountName"
RUN_AS_USER = "waymark.kubernetes.run-as-user"
_DRIVER = f"{_K8S}driver."
_CLAIM = f"{_DRIVER}volumes.persistentVolumeClaim."
_FACTOR = f"{_K8S}memoryOverheadFactor"
_TEMPLATES = (f"{_DRIVER}podTemplateFile", f"{_K8S}driver.podTemplateContainerName")

_SPARKS_USER = "185"  # the user in the images that Spark publishes
_PYTHON_OVERHEAD = "0.4"  # Spark's own factor for Python programs in pods

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_CPU = re.compile(r"(?!0+(\.0+)?m?$)(\d+(\.\d{1,3})?|\d+m)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_KEY = re.compile(r"(?P<name>[a-z0-9.-]+):(?P<key>[-._A-Za-z0-9]+)")
_PATH = re.compile(r"/[^:]*")
_PULL_POLICIES = ("IfNotPresent", "Always", "Never")


@dataclass(frozen=True)
class VolumeClaim:
    name: str
    claim: str
    path: str
    read_only: bool

    def has(self, path: str) -> bool:
        return path == self.path or path.startswith(f"{self.path.rstrip('/')}/")


@dataclass(frozen=True)
class PodConfiguration:
    """The settings of a driver's pod. `memory` and `memory_limit` are in bytes.

    `secret_variables` maps a variable to the name and the key of a cluster secret. `secret_mounts` maps a secret to the
    directory where it is mounted.
    """

    namespace: str
    image: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    service_account: str | None
    user: int
    request_cores: str
    limit_cores: str | None
    memory: int
    memory_limit: int
    node_selector: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    variables: Mapping[str, str]
    secret_variables: Mapping[str, tuple[str, str]]
    secret_mounts: Mapping[str, str]
    claims: tuple[VolumeClaim, ...]

    def is_mounted(self, path: str) -> bool:
        """Return whether `path` is on a volume that outlives the pod."""
        return any(claim.has(path) for claim in self.claims)

    @classmethod
    def parse(cls, configuration: Mapping[str, str], default_namespace: str, cores: int) -> PodConfiguration:
        """Parse the settings. Raise InvalidConfiguration.

        `cores` is how many tasks the driver's process runs at a time.
        """
        read = _Reader(configuration)
        for key in _TEMPLATES:
            if key in configuration:
                raise InvalidConfiguration(
                    key, configuration[key], f"pod templates are not supported; use the keys {_K8S}…"
                )
        image = configuration.get(f"{_DRIVER}container.image", "").strip() or configuration.get(IMAGE, "").strip()
        if not _IMAGE.fullmatch(image):
            allowed = "an image with PySpark and what Waymark's side of a driver imports, such as registry/streams:1"
            raise InvalidConfiguration(IMAGE, image, allowed)
        memory = _memory(configuration)
        default_cores = configuration.get("spark.driver.cores", "").strip() or str(cores)
        user = read.text(RUN_AS_USER, _SPARKS_USER, re.compile(r"[1-9]\d{0,8}"), "the number of a user other than root")
        return cls(
            namespace=read.text(NAMESPACE, default_namespace, _DNS_LABEL, "the name of a namespace"),
            image=image,
            pull_policy=read.choice(f"{_K8S}container.image.pullPolicy", _PULL_POLICIES),
            pull_secrets=read.names(f"{_K8S}container.image.pullSecrets"),
            service_account=read.optional(SERVICE_ACCOUNT, _DNS_NAME, "the name of a service account"),
            user=int(user),
            request_cores=read.text(f"{_DRIVER}request.cores", default_cores, _CPU, "processors such as 2 or 500m"),
            limit_cores=read.optional(f"{_DRIVER}limit.cores", _CPU, "processors such as 2 or 500m"),
            memory=memory,
            memory_limit=limit_of(configuration, Demand(memory)) if LIMIT in configuration else memory,
            node_selector={**read.labels(f"{_K8S}node.selector."), **read.labels(f"{_DRIVER}node.selector.")},
            labels=read.labels(f"{_DRIVER}label."),
            annotations=read.values_with_prefix(
                f"{_DRIVER}annotation.", _LABEL_KEY, re.compile(r".*", re.DOTALL), "a text"
            ),
            variables=read.values_with_prefix(
                f"{_K8S}driverEnv.", _VARIABLE, re.compile(r"[^\0]*", re.DOTALL), "a text"
            ),
            secret_variables=read.secret_keys(),
            secret_mounts=read.values_with_prefix(f"{_DRIVER}secrets.", _DNS_NAME, _PATH, "an absolute path"),
            claims=read.claims(),
        )


class _Reader:
    """Read and check single keys. All methods raise InvalidConfiguration."""

    def __init__(self, configuration: Mapping[str, str]) -> None:
        self._configuration = configuration

    def text(self, key: str, default: str, form: re.Pattern[str], allowed: str) -> str:
        value = self._configuration.get(key, "").strip() or default
        if not form.fullmatch(value):
            raise InvalidConfiguration(key, value, allowed)
        return value

    def optional(self, key: str, form: re.Pattern[str], allowed: str) -> str | None:
        return self.text(key, "", form, allowed) if self._configuration.get(key, "").strip() else None

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        return self.text(key, allowed[0], re.compile("|".join(allowed)), " or ".join(allowed))

    def names(self, key: str) -> tuple[str, ...]:
        found = tuple(each.strip() for each in self._configuration.get(key, "").split(",") if each.strip())
        for each in found:
            if not _DNS_NAME.fullmatch(each):
                raise InvalidConfiguration(key, each, "use names of secrets, separated by commas")
        return found

    def labels(self, prefix: str) -> dict[str, str]:
        return self.values_with_prefix(prefix, _LABEL_KEY, _LABEL, "at most 63 letters, digits and . _ -")

    def values_with_prefix(
        self, prefix: str, name: re.Pattern[str], form: re.Pattern[str], allowed: str
    ) -> dict[str, str]:
        """Return the values of all keys that begin with `prefix`. The rest of each key is the name."""
        found = {
            key.removeprefix(prefix): value for key, value in self._configuration.items() if key.startswith(prefix)
        }
        for each, value in found.items():
            if not name.fullmatch(each):
                raise InvalidConfiguration(prefix + each, value, f"{each!r} is not a valid name in Kubernetes")
            if not form.fullmatch(value):
                raise InvalidConfiguration(prefix + each, value, allowed)
        return found

    def secret_keys(self) -> dict[str, tuple[str, str]]:
        found = self.values_with_prefix(
            f"{_DRIVER}secretKeyRef.", _VARIABLE, _SECRET_KEY, "the name of a secret, a colon, its key"
        )
        return {name: (value.partition(":")[0], value.partition(":")[2]) for name, value in found.items()}

    def claims(self) -> tuple[VolumeClaim, ...]:
        volumes = f"{_DRIVER}volumes."
        parts: dict[str, dict[str, str]] = {}
        for key, value in self._configuration.items():
            if key.startswith(_CLAIM):
                name, _, field = key.removeprefix(_CLAIM).partition(".")
                parts.setdefault(name, {})[field] = value.strip()
            elif key.startswith(volumes):
                raise InvalidConfiguration(
                    key, value, f"only volumes of persistent volume claims are supported: {_CLAIM}NAME.mount.path"
                )
        return tuple(self._claim(name, fields) for name, fields in sorted(parts.items()))

    def _claim(self, name: str, fields: Mapping[str, str]) -> VolumeClaim:
        key = f"{_CLAIM}{name}."

        def checked(field: str, is_right: Callable[[str], object], allowed: str) -> str:
            value = fields.get(field, "")
            if not is_right(value):
                raise InvalidConfiguration(key + field, value, allowed)
            return value

        if not _DNS_LABEL.fullmatch(name):
            raise InvalidConfiguration(
                f"{key}mount.path", fields.get("mount.path", ""), f"{name!r} is not a valid name of a volume"
            )
        return VolumeClaim(
            name,
            checked("options.claimName", _DNS_NAME.fullmatch, "the name of a persistent volume claim that exists"),
            checked("mount.path", _PATH.fullmatch, "an absolute path"),
            checked("mount.readOnly", lambda value: value in ("", "true", "false"), "true or false") == "true",
        )


def _memory(configuration: Mapping[str, str]) -> int:
    """Return the memory that the job requests, else Spark's default for a pod: Java's heap and Python's overhead."""
    factor = FACTOR if FACTOR in configuration else _FACTOR
    return requested_memory(configuration) or heap_and_overhead(configuration, factor, _PYTHON_OVERHEAD)
