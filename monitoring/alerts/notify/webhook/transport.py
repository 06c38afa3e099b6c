"""A JSON POST to a URL. Redirects are not followed: the address a person typed is the one that is told."""

from __future__ import annotations

import json
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx2

from monitoring.alerts.notify.message import BadChannel, Failed, Message, Sent
from monitoring.alerts.notify.webhook.signature import sign
from monitoring.models import Channel
from monitoring.secret import SecretUnreadable

TIMEOUT = httpx2.Timeout(10.0, connect=5.0)
ANSWER_BYTES = 300  # as much of the answer as the delivery's log shows; the rest is not read
ANSWER_S = 10.0  # for all of them: a receiver that trickles does not hold the worker
TRY_AGAIN = frozenset({408, 425, 429})


class WebhookTransport:
    def check(self, settings: dict[str, object]) -> None:
        _url(settings)

    def send(self, channel: Channel, message: Message, now: datetime) -> Sent | Failed:
        try:
            url = _url(channel.settings)
            body = json.dumps(payload(message), ensure_ascii=False).encode()
            headers = _headers(channel.secret.reveal(), message.key, body, now)
            with (
                httpx2.Client(timeout=TIMEOUT, follow_redirects=False, trust_env=False) as client,
                client.stream("POST", url, content=body, headers=headers) as response,
            ):
                return _verdict(response, _first_bytes(response), now)
        except BadChannel as problem:
            return Failed(str(problem), permanent=True)
        except SecretUnreadable as problem:
            return Failed(str(problem))
        except httpx2.TimeoutException:
            return Failed("The receiver did not answer in time")
        except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
            return Failed(f"The receiver could not be reached: {problem or type(problem).__name__}")


def payload(message: Message) -> dict[str, object]:
    return {
        "key": message.key,
        "event": message.event,
        "severity": message.severity,
        "job": message.job,
        "cluster": message.cluster,
        "sentence": message.sentence,
        "at": message.at.isoformat(),
        "incident": {"id": message.incident_id, "url": message.incident_url},
        "job_url": message.job_url,
        "evidence": message.evidence,
    }


def _headers(secret: str, key: str, body: bytes, now: datetime) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "User-Agent": "waymark", "Idempotency-Key": key}
    if secret:
        headers["X-Waymark-Signature"] = sign(secret, int(now.timestamp()), body)
    return headers


def _verdict(response: httpx2.Response, text: str, now: datetime) -> Sent | Failed:
    answer = f"{response.status_code} {response.reason_phrase}{f': {text}' if text else ''}"
    if response.is_success:
        return Sent(answer)
    if response.is_redirect:
        return Failed(f"{answer} (redirects are not followed)", permanent=True)
    if response.status_code in TRY_AGAIN or response.is_server_error:
        return Failed(answer, retry_after_s=_retry_after(response, now))
    return Failed(answer, permanent=True)


def _retry_after(response: httpx2.Response, now: datetime) -> float | None:
    """Seconds or an HTTP date; None when there is none that can be read."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds()) if value else None
    except (ValueError, TypeError):
        return None


def _first_bytes(response: httpx2.Response) -> str:
    """The start of the answer, one line. An answer that breaks off after its status line still is that answer."""
    started, read = time.monotonic(), b""
    try:
        for chunk in response.iter_bytes():
            read += chunk
            if len(read) >= ANSWER_BYTES or time.monotonic() - started > ANSWER_S:
                break
    except httpx2.HTTPError:
        pass
    return " ".join(read[:ANSWER_BYTES].decode("utf-8", "replace").split())


def _url(settings: dict[str, object]) -> str:
    url = settings.get("url")
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadChannel("url", url, "an address like https://example.org/hook is needed")
    return str(url)
