"""A client of the Kubernetes API, with the few calls that running drivers as pods needs. All methods block.

It uses kubernetes_asyncio, of the extra `kubernetes`. Each call starts an event loop, so none may be running.

An error answer raises ApiRefused. If there is no answer for any other reason, ApiUnreachable is raised: then it is
unknown whether the call has had an effect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient, Configuration

Json = dict[str, Any]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S = 10.0
_FOLLOW_TIMEOUT_S = 60.0
_TOO_MANY_REQUESTS = 429
_UNAUTHORIZED = 401


# A call of the library's CoreV1Api. With `_preload_content=False`, it returns the response unparsed.
Call = Callable[[Any], Awaitable[aiohttp.ClientResponse]]


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


def is_installed() -> bool:
    """Return whether the extra `kubernetes` is installed."""
    return find_spec("kubernetes_asyncio") is not None


class KubernetesApi:
    def __init__(self, access: ApiAccess, timeout_s: float = _TIMEOUT_S) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._options: dict[str, Any] = {"_preload_content": False, "_request_timeout": timeout_s}

    def create_pod(self, namespace: str, pod: Json) -> Json:
        return self._json(lambda core: core.create_namespaced_pod(namespace, pod, **self._options))

    def create_secret(self, namespace: str, secret: Json) -> Json:
        return self._json(lambda core: core.create_namespaced_secret(namespace, secret, **self._options))

    def pod(self, namespace: str, name: str) -> Json:
        return self._json(lambda core: core.read_namespaced_pod(name, namespace, **self._options))

    def pods(self, namespace: str, selector: Mapping[str, str]) -> list[Json]:
        """Return the pods that have all labels of `selector`."""
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        found = self._json(lambda core: core.list_namespaced_pod(namespace, label_selector=labels, **self._options))
        return list(found.get("items") or [])

    def delete_pod(self, namespace: str, name: str, uid: str, grace_s: float) -> None:
        """Ask Kubernetes to end this pod. Another pod with its name stays, which is reported as a conflict.

        The grace period is never 0: then the API would forget the pod before its node has ended it.
        """
        body = {"gracePeriodSeconds": max(1, round(grace_s)), "preconditions": {"uid": uid}}
        self._json(lambda core: core.delete_namespaced_pod(name, namespace, body=body, **self._options))

    def follow_log(self, namespace: str, name: str, container: str, since: str | None = None) -> Iterator[bytes]:
        """Yield the lines of the container's log, each after its time stamp, until the container ends.

        Args:
            since: the time stamp of the first line to return, in whole seconds.
        """
        with self._failures(), asyncio.Runner() as runner:
            chunks = self._log(namespace, name, container, since)
            rest = b""
            while chunk := runner.run(_next(chunks)):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line + b"\n" for line in lines)
            if rest:
                yield rest

    async def _log(self, namespace: str, name: str, container: str, since: str | None) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a log. The library's own method lacks the parameter `sinceTime`."""
        query = [("container", container), ("follow", "true"), ("timestamps", "true")]
        if since is not None:
            query.append(("sinceTime", since))
        async with self._client() as client:
            answer = await client.call_api(
                "/api/v1/namespaces/{namespace}/pods/{name}/log",
                "GET",
                {"namespace": namespace, "name": name},
                query,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=aiohttp.ClientTimeout(sock_connect=self._timeout_s, sock_read=_FOLLOW_TIMEOUT_S),
            )
            if answer.status != 200:
                raise _refusal(answer, await answer.read())
            async for chunk in answer.content.iter_any():
                yield chunk

    def _json(self, call: Call) -> Json:
        with self._failures():
            found = json.loads(asyncio.run(self._content(call)) or b"{}")
        if not isinstance(found, dict):
            raise ApiUnreachable(f"{self._access.address} is not a Kubernetes API: its response is not a JSON object")
        return found

    async def _content(self, call: Call) -> bytes:
        from kubernetes_asyncio.client import CoreV1Api

        async with self._client() as client:
            answer = await call(CoreV1Api(client))
            content = await answer.read()
        if not 200 <= answer.status < 300:
            raise _refusal(answer, content)
        return content

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = str(error) or "it takes too long"
            raise ApiUnreachable(f"The Kubernetes API at {self._access.address} does not answer: {reason}") from error

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[ApiClient]:
        from kubernetes_asyncio.client import ApiClient

        async with ApiClient(self._configuration()) as client:
            # The environment's proxies are for addresses outside the cluster, so the session must not use them.
            rest = client.rest_client
            session = aiohttp.ClientSession(connector=rest.pool_manager.connector, trust_env=False)
            rest.pool_manager.detach()
            rest.pool_manager = session
            yield client

    def _configuration(self) -> Configuration:
        """Return the configuration. Read the token each time: Kubernetes replaces the file before the token expires."""
        from kubernetes_asyncio.client import Configuration

        authorities = self._access.authorities_file
        configuration = Configuration(host=self._access.address, ssl_ca_cert=str(authorities) if authorities else None)
        if self._access.token_file is not None:
            configuration.api_key["BearerToken"] = f"Bearer {self._access.token_file.read_text().strip()}"
        return configuration


async def _next(chunks: AsyncGenerator[bytes, None]) -> bytes:
    """Return the next bytes, b"" at the end."""
    return await anext(chunks, b"")


def _refusal(answer: aiohttp.ClientResponse, content: bytes) -> Exception:
    """Return the exception for an error answer.

    A server that is busy, or no longer accepts this process's token, may serve the request later: ApiUnreachable.
    """
    try:
        status = json.loads(content or b"{}")
        reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    except (ValueError, AttributeError):
        reason, message = "", ""
    message = message or str(answer.reason)
    if answer.status >= 500 or answer.status in (_TOO_MANY_REQUESTS, _UNAUTHORIZED):
        return ApiUnreachable(f"The Kubernetes API answers {answer.status}: {message}")
    return ApiRefused(answer.status, reason, message)
