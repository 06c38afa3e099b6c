"""The kinds of channels. To add a kind, add a folder and an entry here. The conformance test runs for all kinds."""

from __future__ import annotations

from monitoring.models import ChannelKind
from monitoring.notify.apprise.transport import AppriseTransport
from monitoring.notify.mail.transport import MailTransport
from monitoring.notify.message import Transport
from monitoring.notify.webhook.transport import WebhookTransport

TRANSPORTS: dict[ChannelKind, Transport] = {
    ChannelKind.MAIL: MailTransport(),
    ChannelKind.WEBHOOK: WebhookTransport(),
    ChannelKind.APPRISE: AppriseTransport(),
}


def transport_of(kind: str) -> Transport:
    return TRANSPORTS[ChannelKind(kind)]
