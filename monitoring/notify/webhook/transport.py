"""Send a message as a JSON POST to a URL. Redirects are not followed, because only the given URL was checked."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime

from monitoring.models import Channel
from monitoring.notify.addresses import check_address, policy_of, without_path
from monitoring.notify.message import BadChannel, Failed, Item, Message, Sent, one_line
from monitoring.notify.shift import as_json
from monitoring.outbound import Denied, Why, parse
from monitoring.outbound_http import AddressDenied, Answer, NotReached, seconds_to_wait, send
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.reason import Reason
from monitoring.secret import SecretUnreadable

TRY_AGAIN = frozenset({408, 425, 429})


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """Return `t=<unix seconds>,v1=<hex HMAC-SHA256 of "<unix seconds>.<body>">`.

    A receiver recomputes it over the raw body and refuses old timestamps, so that a captured request cannot be
    replayed.
    """
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def verify(secret: str, header: str, body: bytes) -> bool:
    """Return whether `header` signs `body`. The receiver must check the age of the timestamp."""
    timestamp = header.partition(",")[0].removeprefix("t=")
    return timestamp.isdecimal() and hmac.compare_digest(sign(secret, int(timestamp), body), header)


class WebhookTransport:
    def check(self, channel: Channel) -> None:
        check_address("url", _url(channel.settings), channel)

    def send(self, channel: Channel, message: Message, now: datetime) -> Sent | Failed:
        try:
            url = _url(channel.settings)
            body = json.dumps(payload(message), ensure_ascii=False).encode()
            headers = _headers(channel.secret.reveal(), message.key, body, now)
            return _verdict(send("POST", url, policy_of(channel), headers, body), now)
        except BadChannel as problem:
            return Failed(problem.reason, permanent=True)
        except SecretUnreadable as problem:
            return Failed(problem.reason)
        except AddressDenied as problem:
            return Failed(problem.denied.reason, permanent=problem.denied.why is not Why.UNRESOLVED)
        except TimeoutError:
            return Failed(NotifyReason.NO_ANSWER_IN_TIME())
        except NotReached as problem:
            return Failed(NotifyReason.NOT_REACHED(why=str(problem)))


def payload(message: Message) -> dict[str, object]:
    """Return the JSON body: the gravest incident's fields, and in `incidents` the first twenty of `count`.

    A shift summary has the event "summary", no incidents, and its numbers and rows in `summary`.
    """
    if message.summary is not None:
        return {
            "key": message.key,
            "event": message.lead.event,
            "sentence": message.lead.text(),
            "sentence_value": _as_json(message.lead.sentence),
            "at": message.lead.at.isoformat(),
            "url": message.lead.job_url,
            "summary": one_line(as_json(message.summary)),
        }
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
        "sentence": item.text(),
        "sentence_value": _as_json(item.sentence),
        "likely_cause": item.cause_text(),
        "likely_cause_value": _as_json(item.cause),
        "runbook": item.runbook,
        "at": item.at.isoformat(),
        "incident": {"id": item.incident_id, "url": item.incident_url},
        "job_url": item.job_url,
        "evidence": item.evidence,
    }


def _as_json(reason: Reason | str | None) -> object:
    return one_line(reason.as_json()) if isinstance(reason, Reason) else None


def _headers(secret: str, key: str, body: bytes, now: datetime) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    if secret:
        headers["X-Waymark-Signature"] = sign(secret, int(now.timestamp()), body)
    return headers


def _verdict(answer: Answer, now: datetime) -> Sent | Failed:
    words = f"{answer.status} {answer.phrase}{f': {answer.text}' if answer.text else ''}"
    if 200 <= answer.status < 300:
        return Sent(words)
    if 300 <= answer.status < 400:
        return Failed(NotifyReason.REDIRECTED(answer=words), permanent=True)
    if answer.status in TRY_AGAIN or answer.status >= 500:
        return Failed(words, retry_after_s=seconds_to_wait(answer.headers.get("Retry-After", ""), now))
    return Failed(words, permanent=True)


def _url(settings: dict[str, object]) -> str:
    """Return the webhook's URL. Raise BadChannel."""
    url = settings.get("url")
    if not isinstance(url, str):
        raise BadChannel("url", url, NotifyReason.URL_NEEDED())
    target = parse(url)
    if isinstance(target, Denied):
        raise BadChannel("url", without_path(url), target.reason)
    return url
