"""Send mail through the channel's own SMTP server or the one in the settings.

The Message-ID contains the message's key, so a retry is the same mail.
"""

from __future__ import annotations

import smtplib
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings as site
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives
from django.core.validators import validate_email

from monitoring.models import Channel
from monitoring.notify.mail.server import MailServer, ServerDenied, connection_to, server_of
from monitoring.notify.message import BadChannel, Failed, Message, Sent
from monitoring.notify.wording.texts import text_of
from monitoring.reasons.notify import NotifyReason
from monitoring.secret import SecretUnreadable

TIMEOUT_S = 10


class MailTransport:
    def check(self, channel: Channel) -> None:
        _recipients(channel.settings)
        server_of(channel).check()

    def send(self, channel: Channel, message: Message, now: datetime) -> Sent | Failed:
        try:
            recipients = _recipients(channel.settings)
            server = server_of(channel)
        except BadChannel as problem:
            return Failed(problem.reason, permanent=True)
        except SecretUnreadable as problem:
            return Failed(problem.reason)
        return _send(_mail(channel, message, recipients, server), server)


def _send(mail: EmailMultiAlternatives, server: MailServer) -> Sent | Failed:
    try:
        mail.send()
    except ServerDenied as problem:
        return Failed(problem.reason, permanent=True)
    except smtplib.SMTPRecipientsRefused as problem:
        refused = [f"{to}: {code} {_text(reason)}" for to, (code, reason) in problem.recipients.items()]
        permanent = all(code >= 500 for code, _ in problem.recipients.values())
        return Failed(NotifyReason.RECIPIENTS_REFUSED(refused=refused), permanent)
    except smtplib.SMTPResponseException as problem:
        answered = NotifyReason.MAIL_SERVER_ANSWERED(code=problem.smtp_code, answer=_text(problem.smtp_error))
        return Failed(answered, permanent=500 <= problem.smtp_code < 600)
    except (OSError, smtplib.SMTPException) as problem:
        return Failed(NotifyReason.MAIL_NOT_TAKEN(address=server.address, why=str(problem)))
    return Sent(NotifyReason.MAIL_TAKEN(to=mail.to))


def _mail(channel: Channel, message: Message, recipients: list[str], server: MailServer) -> EmailMultiAlternatives:
    text = text_of(channel, message)
    mail = EmailMultiAlternatives(
        subject=text.subject,
        body=text.body,
        to=recipients,
        headers={
            "Message-ID": f"<{message.key}@{_domain()}>",
            # One thread per incident, and one of the summaries, in the reader's mailbox.
            "References": f"<{'summaries' if message.summary else f'incident-{message.lead.incident_id}'}@{_domain()}>",
            "Auto-Submitted": "auto-generated",
        },
        connection=connection_to(server, TIMEOUT_S),
    )
    if text.html:
        mail.attach_alternative(text.html, "text/html")
    return mail


def _recipients(settings: dict[str, object]) -> list[str]:
    to = settings.get("to")
    if not isinstance(to, list) or not to:
        raise BadChannel("to", to, NotifyReason.RECIPIENT_NEEDED())
    for address in to:
        try:
            validate_email(address)
        except ValidationError:
            raise BadChannel("to", address, NotifyReason.MAIL_ADDRESS_NEEDED()) from None
    return [str(address) for address in to]


def _domain() -> str:
    return urlsplit(site.PUBLIC_URL).hostname or "waymark"


def _text(raw: bytes | str) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
