"""The kinds of channels. A new kind is a folder and a line here; the conformance test runs over all of them."""

from __future__ import annotations

from monitoring.alerts.notify.apprise.transport import AppriseTransport
from monitoring.alerts.notify.mail.transport import MailTransport
from monitoring.alerts.notify.message import Transport
from monitoring.alerts.notify.webhook.transport import WebhookTransport
from monitoring.models import ChannelKind

TRANSPORTS: dict[ChannelKind, Transport] = {
    ChannelKind.MAIL: MailTransport(),
    ChannelKind.WEBHOOK: WebhookTransport(),
    ChannelKind.APPRISE: AppriseTransport(),
}


def transport_of(kind: str) -> Transport:
    return TRANSPORTS[ChannelKind(kind)]
