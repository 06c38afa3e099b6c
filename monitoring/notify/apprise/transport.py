"""Send a message through Apprise to a chat, paging or push service, which Apprise identifies by a URL."""

from __future__ import annotations

import re
import time
from datetime import datetime
from urllib.parse import parse_qsl, urlsplit

from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType, OverflowMode, PersistentStoreMode
from apprise.plugins.base import NotifyBase

from monitoring.models import Channel
from monitoring.notify.addresses import policy_of
from monitoring.notify.apprise.guard import LIMIT_S, Answer, Exchange, guarded
from monitoring.notify.apprise.paging import aim, one_by_one, pages
from monitoring.notify.apprise.services import REFUSED_PARAMETERS, SERVICES
from monitoring.notify.message import BadChannel, Failed, Message, Sent
from monitoring.notify.wording.texts import text_of
from monitoring.outbound import Denied, Why, judge, parse, resolve
from monitoring.outbound_http import seconds_to_wait
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.reason import Reason
from monitoring.secret import SecretUnreadable

TRY_AGAIN = frozenset({408, 425, 429})
_SCHEME = re.compile(r"\s*([a-z0-9]+)://", re.IGNORECASE)


class AppriseTransport:
    def check(self, channel: Channel) -> None:
        _service(channel.secret.reveal())
        _check_host(channel)

    def send(self, channel: Channel, message: Message, now: datetime) -> Sent | Failed:
        try:
            url = channel.secret.reveal()
            _service(url)
        except BadChannel as problem:
            return Failed(problem.reason, permanent=True)
        except SecretUnreadable as problem:
            return Failed(problem.reason)
        if not pages(_scheme(url), url):
            return _deliver(channel, url, message, now)
        if message.summary is not None:
            return Failed(NotifyReason.NO_SUMMARY(), permanent=True)
        return _page(channel, url, message, now)


def _deliver(channel: Channel, url: str, message: Message, now: datetime, *, page: bool = False) -> Sent | Failed:
    service, text = _service(url), text_of(channel, message)
    if page:
        aim(service, _scheme(url), message)
    with guarded(policy_of(channel), message.key) as exchange:
        sent = service.notify(
            body=text.body, title=text.subject, notify_type=_type(message), body_format=NotifyFormat.TEXT
        )
    return _verdict(bool(sent), exchange, now)


def _page(channel: Channel, url: str, message: Message, now: datetime) -> Sent | Failed:
    """Send a message for each incident and stop at the first failure.

    The retry sends all of them again. Their keys prevent a second alert.
    """
    until = time.monotonic() + LIMIT_S
    answer: Sent | Failed = Failed(NotifyReason.NO_INCIDENTS(), permanent=True)
    for each in one_by_one(message):
        if time.monotonic() > until:
            return Failed(NotifyReason.TOO_SLOW_FOR_ALL(limit_s=LIMIT_S))
        answer = _deliver(channel, url, each, now, page=True)
        if isinstance(answer, Failed):
            return answer
    return answer


def opens_alerts(url: str) -> bool:
    """Return whether the URL's service opens an alert for each message."""
    return pages(_scheme(url), url)


def service_name(url: str) -> str:
    """Return the display name of the URL's service, "" if the service is not allowed."""
    return SERVICES.get(_scheme(url), "")


def _service(url: str) -> NotifyBase:
    """Return Apprise's service. Raise BadChannel, whose text never contains the URL, because it is secret."""
    scheme = _scheme(url)
    if scheme not in SERVICES:
        raise BadChannel("apprise_url", f"{scheme}://…" if scheme else "", _allowed())
    refused = sorted(REFUSED_PARAMETERS & {name.lower() for name, _ in parse_qsl(urlsplit(url).query, True)})
    if refused:
        raise BadChannel("apprise_url", f"{scheme}://…?{refused[0]}=…", NotifyReason.BAD_PARAMETER(name=refused[0]))
    service = Apprise.instantiate(url, asset=_asset(), suppress_exceptions=True)
    if not isinstance(service, NotifyBase):
        raise BadChannel("apprise_url", f"{scheme}://…", NotifyReason.INCOMPLETE_ADDRESS(service=SERVICES[scheme]))
    service.overflow_mode = OverflowMode.TRUNCATE
    return service


def _asset() -> AppriseAsset:
    return AppriseAsset(
        storage_mode=PersistentStoreMode.MEMORY,
        allow_templates=False,
        app_id="Waymark",
        app_desc="Waymark",
        app_url="",
        http_redirects=False,
    )


def _scheme(url: str) -> str:
    found = _SCHEME.match(url)
    return found[1].lower() if found else ""


def _check_host(channel: Channel) -> None:
    """Check the server in the URL, if the service uses one. The guard checks the servers of other services later.

    Raises:
        BadChannel: the address is not allowed.
    """
    parts = urlsplit(channel.secret.reveal().strip())
    host = parts.hostname or ""
    target = parse(f"http://{host}:{_port(parts.netloc)}/")
    if _scheme(channel.secret.reveal()) not in _OWN_SERVER or isinstance(target, Denied):
        return
    try:
        judged = judge(target, resolve(target.host, target.port), policy_of(channel))
    except OSError:
        return
    if isinstance(judged, Denied) and judged.why is Why.FORBIDDEN:
        raise BadChannel("apprise_url", f"…://{host}/…", judged.reason)


_OWN_SERVER = frozenset(
    {
        *("mmost", "mmosts", "rocket", "rockets", "gotify", "gotifys", "bark", "barks", "goalert", "goalerts"),
        *("ntfy", "ntfys", "pushdeer", "pushdeers", "json", "jsons", "xml", "xmls", "form", "forms"),
    }
)


def _port(netloc: str) -> int:
    port = netloc.rpartition(":")[2]
    return int(port) if port.isdecimal() and 0 < int(port) < 65_536 else 80


def _verdict(sent: bool, exchange: Exchange, now: datetime) -> Sent | Failed:
    if exchange.denied is not None:
        return Failed(exchange.denied.reason, permanent=exchange.denied.why is not Why.UNRESOLVED)
    last = _decisive_answer(exchange)
    if sent and (last is None or last.status < 300):
        return Sent(_words(last) if last else NotifyReason.APPRISE_SENT())
    if last is None:
        return Failed(exchange.failure or NotifyReason.APPRISE_FAILED())
    if last.status < 300:
        return Failed(NotifyReason.REFUSED(answer=_words(last)), permanent=True)
    if last.status < 400:
        return Failed(NotifyReason.REDIRECTED(answer=_words(last)), permanent=True)
    if last.status in TRY_AGAIN or last.status >= 500:
        return Failed(_words(last), retry_after_s=seconds_to_wait(last.retry_after, now))
    return Failed(_words(last), permanent=True)


def _decisive_answer(exchange: Exchange) -> Answer | None:
    """Return the first answer that is not a success, else the last one."""
    refused = (each for each in exchange.answers if each.status >= 300)
    return next(refused, exchange.answers[-1] if exchange.answers else None)


def _words(answer: Answer) -> str:
    return f"{answer.status} {answer.phrase}{f': {answer.text}' if answer.text else ''}"


def _type(message: Message) -> NotifyType:
    if message.lead.event == "resolved":
        return NotifyType.SUCCESS
    if message.summary is not None:
        return NotifyType.INFO
    return NotifyType.FAILURE if message.lead.severity == "critical" else NotifyType.WARNING


def _allowed() -> Reason:
    return NotifyReason.SERVICES(schemes=[f"{scheme}://" for scheme in SERVICES])
