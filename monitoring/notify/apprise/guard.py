"""Control Apprise's HTTP requests: check the address, follow no redirect, limit the time, and keep the answer.

Apprise's services call `requests` directly and return only whether it succeeded. `requests` gets an adapter from its
Session for every request. While a guard is active in this thread, the Session returns the guard's adapter.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter

from monitoring.outbound import Allowed, Denied, Policy, check, resolve
from monitoring.outbound_http import trusted
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.reason import Reason

TIME_OUT_S = (5.0, 10.0)  # limits for connecting, and for the wait between two bytes
ANSWER_BYTES = 65_536
ANSWER_S = 10.0
LIMIT_S = 20.0  # after this time the guard sends no further request: a service may have many recipients


@dataclass(frozen=True)
class Answer:
    """A receiver's answer: its status, the reason phrase, the Retry-After header, and the start of the text."""

    status: int
    phrase: str
    retry_after: str
    text: str


@dataclass
class Exchange:
    """The answers and errors while a guard is active. A service may send several requests for one message."""

    answers: list[Answer] = field(default_factory=list)
    denied: Denied | None = None
    failure: Reason | None = None


class AddressRefused(requests.ConnectionError):
    """The address is not allowed, so no connection was made."""


_ADAPTER: ContextVar[BaseAdapter | None] = ContextVar("apprise_adapter", default=None)


@contextlib.contextmanager
def guarded(policy: Policy, key: str) -> Iterator[Exchange]:
    """Guard the requests of this thread, and send `key` as the Idempotency-Key header of each."""
    exchange = Exchange()
    adapter = _CheckedAdapter(policy, key, exchange)
    token = _ADAPTER.set(adapter)
    try:
        yield exchange
    finally:
        _ADAPTER.reset(token)
        adapter.close()


class _CheckedAdapter(HTTPAdapter):
    """An adapter that connects to the first checked IP address of a host. TLS still verifies the host's name."""

    def __init__(self, policy: Policy, key: str, exchange: Exchange) -> None:
        super().__init__(max_retries=0)
        self._policy, self._key, self._exchange = policy, key, exchange
        self._until = time.monotonic() + LIMIT_S

    def send(self, request: requests.PreparedRequest, *_args: Any, **options: Any) -> requests.Response:
        if time.monotonic() > self._until:
            self._exchange.failure = NotifyReason.TOO_SLOW(limit_s=LIMIT_S)
            raise requests.Timeout(str(self._exchange.failure))
        request.headers.setdefault("Host", urlsplit(request.url or "").netloc.rpartition("@")[2])
        request.headers.setdefault("Idempotency-Key", self._key)
        try:
            response = super().send(request, stream=True, timeout=TIME_OUT_S, verify=True, proxies={})
        except AddressRefused:
            raise
        except requests.Timeout:
            self._exchange.failure = NotifyReason.NO_ANSWER_IN_TIME()
            raise
        except requests.RequestException as problem:
            self._exchange.failure = NotifyReason.NOT_REACHED(why=_innermost(problem))
            raise
        _read(response)
        self._exchange.answers.append(_answer(response))
        return _without_redirect(response)

    def get_connection_with_tls_context(
        self, request: requests.PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        judged = self._judged(request.url or "")
        host, options = self.build_connection_pool_key_attributes(request, verify, cert)
        if host["scheme"] == "https":
            options |= {"server_hostname": judged.target.host, "assert_hostname": judged.target.host}
            options |= {"ssl_context": trusted()}
        return self.poolmanager.connection_from_host(
            judged.addresses[0], port=judged.target.port, scheme=host["scheme"], pool_kwargs=options
        )

    def _judged(self, url: str) -> Allowed:
        judged = check(url, self._policy, resolve)
        if isinstance(judged, Denied):
            self._exchange.denied = judged
            raise AddressRefused(str(judged.reason))
        return judged


def _adapter_of(self: requests.Session, url: str) -> BaseAdapter:
    return _ADAPTER.get() or _unguarded(self, url)


def _read(response: requests.Response) -> None:
    """Read only the start of the answer, because `requests` would read for as long as the receiver sends."""
    started, content = time.monotonic(), b""
    with contextlib.suppress(requests.RequestException):
        for chunk in response.iter_content(4096):
            content += chunk
            if len(content) >= ANSWER_BYTES or time.monotonic() - started > ANSWER_S:
                break
    response.raw.close()
    response._content, response._content_consumed = content[:ANSWER_BYTES], True  # noqa: SLF001 (no public way)


def _answer(response: requests.Response) -> Answer:
    text = " ".join(response.content[:1000].decode("utf-8", "replace").split())[:300]
    return Answer(response.status_code, response.reason or "", response.headers.get("Retry-After", ""), text)


def _without_redirect(response: requests.Response) -> requests.Response:
    response.headers.pop("Location", None)
    return response


def _innermost(problem: BaseException) -> str:
    reason = getattr(problem.args[0], "reason", None) if problem.args else None
    text = str(reason or problem)
    return text.rpartition(": ")[2] if reason else text


_unguarded = requests.Session.get_adapter
requests.Session.get_adapter = _adapter_of  # type: ignore[method-assign]
