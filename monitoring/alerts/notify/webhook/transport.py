"""A JSON POST to a URL. Redirects are not followed: the address that a person typed and that was checked is told."""

from __future__ import annotations

import json
import time
from datetime import datetime

import httpx2

from monitoring.alerts.notify.addresses import check_address, policy_of, without_path
from monitoring.alerts.notify.message import BadChannel, Failed, Item, Message, Sent
from monitoring.alerts.notify.retry_after import seconds_to_wait
from monitoring.alerts.notify.webhook.signature import sign
from monitoring.models import Channel
from monitoring.outbound import Denied, Why, parse
from monitoring.outbound_http import AddressDenied, CheckedTransport
from monitoring.secret import SecretUnreadable

TIMEOUT = httpx2.Timeout(10.0, connect=5.0)
ANSWER_BYTES = 300  # as much of the answer as the delivery's log shows; the rest is not read
ANSWER_S = 10.0  # for all of them: a receiver that trickles does not hold the worker
TRY_AGAIN = frozenset({408, 425, 429})


class WebhookTransport:
    def check(self, channel: Channel) -> None:
        check_address("url", _url(channel.settings), channel)

    def send(self, channel: Channel, message: Message, now: datetime) -> Sent | Failed:
        try:
            url = _url(channel.settings)
            body = json.dumps(payload(message), ensure_ascii=False).encode()
            headers = _headers(channel.secret.reveal(), message.key, body, now)
            checked = CheckedTransport(policy_of(channel))
            with (
                httpx2.Client(transport=checked, timeout=TIMEOUT, follow_redirects=False, trust_env=False) as client,
                client.stream("POST", url, content=body, headers=headers) as response,
            ):
                return _verdict(response, _first_bytes(response), now)
        except BadChannel as problem:
            return Failed(str(problem), permanent=True)
        except SecretUnreadable as problem:
            return Failed(str(problem))
        except AddressDenied as problem:
            return Failed(problem.denied.sentence, permanent=problem.denied.why is not Why.UNRESOLVED)
        except httpx2.TimeoutException:
            return Failed("The receiver did not answer in time")
        except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
            return Failed(f"The receiver could not be reached: {problem or type(problem).__name__}")


def payload(message: Message) -> dict[str, object]:
    """The gravest incident's fields at the top; `incidents` has the same of the first twenty of `count`."""
    return {
        "key": message.key,
        **_item(message.lead),
        "count": message.total,
        "digest": message.is_digest,
        "incidents": [_item(each) for each in message.items],
    }


def _item(item: Item) -> dict[str, object]:
    return {
        "event": item.event,
        "severity": item.severity,
        "kind": item.kind,
        "job": item.job,
        "cluster": item.cluster,
        "sentence": item.sentence,
        "likely_cause": item.cause.en if item.cause else "",
        "at": item.at.isoformat(),
        "incident": {"id": item.incident_id, "url": item.incident_url},
        "job_url": item.job_url,
        "evidence": item.evidence,
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
        return Failed(answer, retry_after_s=seconds_to_wait(response.headers.get("Retry-After", ""), now))
    return Failed(answer, permanent=True)


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
    """Raises BadChannel."""
    url = settings.get("url")
    if not isinstance(url, str):
        raise BadChannel("url", url, "an address like https://example.org/hook is needed")
    target = parse(url)
    if isinstance(target, Denied):
        raise BadChannel("url", without_path(url), target.sentence.rstrip("."))
    return url
