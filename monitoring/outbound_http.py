"""An httpx2 client that connects only to addresses which were checked, for messages to addresses that people typed.

with httpx2.Client(transport=CheckedTransport(webhook_policy()), follow_redirects=False, trust_env=False) as client:
"""

from __future__ import annotations

import ssl
from functools import cache
from types import TracebackType
from typing import Self

import httpx2
from django.conf import settings

from monitoring import outbound
from monitoring.outbound import Denied, Policy, Resolve


class AddressDenied(httpx2.ConnectError):
    """Nothing was connected to; `denied` says why."""

    def __init__(self, denied: Denied) -> None:
        super().__init__(denied.sentence)
        self.denied = denied


def webhook_policy() -> Policy:
    return Policy("A channel", private=False, exemptions=settings.OUTBOUND_ALLOW)


def cluster_policy() -> Policy:
    return Policy("A cluster's address", private=True, exemptions=settings.OUTBOUND_ALLOW)


@cache
def _trusting(pem: str) -> ssl.SSLContext:
    context = httpx2.create_ssl_context(trust_env=False)
    if pem:
        context.load_verify_locations(cadata=pem)
    return context


def trusted() -> ssl.SSLContext:
    """The authorities that receivers of messages may be signed by: this machine's, and those of WAYMARK_CA_BUNDLE."""
    return _trusting(settings.CA_BUNDLE)


class CheckedTransport(httpx2.BaseTransport):
    """Resolves, judges, and connects to the very addresses that were judged, one after the other until one answers.

    TLS still checks the name that was asked for. Connections are kept by address, so one transport serves one host.
    """

    def __init__(
        self, policy: Policy, resolve: Resolve = outbound.resolve, verify: ssl.SSLContext | None = None
    ) -> None:
        self._policy = policy
        self._resolve = resolve
        self._inner = httpx2.HTTPTransport(verify=verify or trusted(), trust_env=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises AddressDenied."""
        judged = outbound.check(str(request.url), self._policy, self._resolve)
        if isinstance(judged, Denied):
            raise AddressDenied(judged)
        *others, last = judged.addresses
        for address in others:
            try:
                return self._inner.handle_request(_to(request, address, judged.target.host))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return self._inner.handle_request(_to(request, last, judged.target.host))

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._inner.__exit__(exc_type, exc_value, traceback)


def _to(request: httpx2.Request, address: str, host: str) -> httpx2.Request:
    """The request, to `address`; its Host header is the URL's still, and TLS asks for `host`."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )
