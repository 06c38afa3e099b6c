"""A client of the Kubernetes API, with the few calls that running drivers as pods needs. All methods block.

An error answer raises ApiRefused. If there is no answer for any other reason, ApiUnreachable is raised: then it is
unknown whether the call has had an effect.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

Json = dict[str, Any]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S = 10.0
_FOLLOW_TIMEOUT_S = 60.0
_TOO_MANY_REQUESTS = 429
_UNAUTHORIZED = 401


class ApiUnreachable(Exception):
    """The API server did not answer, or could not serve the request now."""


class ApiRefused(Exception):
    """The API server refused the request. `reason` is Kubernetes' own code, such as AlreadyExists."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message or f"{status} {reason}".strip())
        self.status = status
        self.reason = reason

    @property
    def is_not_found(self) -> bool:
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """Return whether the name is taken, or the precondition does not match the object."""
        return self.status == 409


@dataclass(frozen=True)
class ApiAccess:
    """The API's address and the credentials for it. `namespace` is the default for pods."""

    address: str
    token_file: Path | None
    authorities_file: Path | None
    namespace: str

    @classmethod
    def in_cluster(cls, environ: Mapping[str, str], account: Path = _ACCOUNT) -> ApiAccess | None:
        """Return the access that Kubernetes gives to a pod, or None for a process outside a cluster. Raise OSError."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (account / "token").is_file():
            return None
        address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        namespace = (account / "namespace").read_text().strip()
        return cls(address, account / "token", account / "ca.crt", namespace)


class KubernetesApi:
    def __init__(self, access: ApiAccess, timeout_s: float = _TIMEOUT_S) -> None:
        self._access = access
        self._timeout_s = timeout_s

    def create_pod(self, namespace: str, pod: Json) -> Json:
        return self._json("POST", _path(namespace, "pods"), pod)

    def create_secret(self, namespace: str, secret: Json) -> Json:
        return self._json("POST", _path(namespace, "secrets"), secret)

    def pod(self, namespace: str, name: str) -> Json:
        return self._json("GET", _path(namespace, "pods", name))

    def pods(self, namespace: str, selector: Mapping[str, str]) -> list[Json]:
        """Return the pods that have all labels of `selector`."""
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        query = urllib.parse.urlencode({"labelSelector": labels})
        return list(self._json("GET", f"{_path(namespace, 'pods')}?{query}").get("items") or [])

    def delete_pod(self, namespace: str, name: str, uid: str, grace_s: float) -> None:
        """Ask Kubernetes to end this pod. Another pod with its name stays, which is reported as a conflict.

        The grace period is never 0: then the API would forget the pod before its node has ended it.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": max(1, round(grace_s)),
            "preconditions": {"uid": uid},
        }
        self._json("DELETE", _path(namespace, "pods", name), options)

    def follow_log(self, namespace: str, name: str, container: str, since: str | None = None) -> Iterator[bytes]:
        """Yield the lines of the container's log, each after its time stamp, until the container ends.

        Args:
            since: the time stamp of the first line to return, in whole seconds.
        """
        query = {"container": container, "follow": "true", "timestamps": "true"}
        if since is not None:
            query["sinceTime"] = since
        path = f"{_path(namespace, 'pods', name)}/log?{urllib.parse.urlencode(query)}"
        with self._answer("GET", path, None, _FOLLOW_TIMEOUT_S) as answer:
            while line := answer.readline():
                yield line

    def _json(self, method: str, path: str, body: Json | None = None) -> Json:
        with self._answer(method, path, body, self._timeout_s) as answer:
            found = json.loads(answer.read() or b"{}")
        if not isinstance(found, dict):
            raise ApiUnreachable(f"{self._access.address} is not a Kubernetes API: its response is not a JSON object")
        return found

    @contextmanager
    def _answer(self, method: str, path: str, body: Json | None, timeout_s: float) -> Iterator[IO[bytes]]:
        try:
            request = urllib.request.Request(  # noqa: S310  (the settings allow http and https only)
                f"{self._access.address}{path}",
                None if body is None else json.dumps(body).encode(),
                {"Accept": "application/json", **self._headers(body)},
                method=method,
            )
            with self._opener.open(request, timeout=timeout_s) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise ApiUnreachable(f"The Kubernetes API at {self._access.address} does not answer: {reason}") from error

    def _headers(self, body: Json | None) -> dict[str, str]:
        """Return the headers. Read the token each time: Kubernetes replaces the file before the token expires."""
        content = {} if body is None else {"Content-Type": "application/json"}
        if self._access.token_file is None:
            return content
        return {**content, "Authorization": f"Bearer {self._access.token_file.read_text().strip()}"}

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        """Return an opener that ignores the environment's proxies, which are for addresses outside the cluster."""
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self._access.address.startswith("https://"):
            context = ssl.create_default_context(cafile=self._access.authorities_file)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        return urllib.request.build_opener(*handlers)


def _path(namespace: str, kind: str, name: str = "") -> str:
    parts = ["api", "v1", "namespaces", namespace, kind, *([name] if name else [])]
    return "/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)


def _refusal(error: urllib.error.HTTPError) -> Exception:
    """Return the exception for an error answer.

    A server that is busy, or no longer accepts this process's token, may serve the request later: ApiUnreachable.
    """
    with error:
        try:
            status = json.loads(error.read() or b"{}")
            reason, message = str(status.get("reason", "")), str(status.get("message", ""))
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            reason, message = "", ""
    if error.code >= 500 or error.code in (_TOO_MANY_REQUESTS, _UNAUTHORIZED):
        return ApiUnreachable(f"The Kubernetes API answers {error.code}: {message or error.reason}")
    return ApiRefused(error.code, reason, message or str(error.reason))
