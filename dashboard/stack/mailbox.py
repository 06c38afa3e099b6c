"""The mails that the embedded mail sink has stored: one .eml file per message, at most the newest KEPT."""

from __future__ import annotations

import email
import email.policy
import email.utils
import itertools
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path

MAX_MAILS = 500
_ID = re.compile(r"\d{20}-[0-9a-f]{8}")


@dataclass(frozen=True)
class Mail:
    """A stored mail. `at` is the time of its receipt; `sender` and `recipients` are those of the envelope."""

    id: str
    at: datetime
    sender: str
    recipients: tuple[str, ...]
    subject: str


class NoSuchMail(LookupError):
    """The mailbox has no message with this id."""


def store_mail(directory: Path, content: bytes, sender: str, recipients: list[str], at: datetime) -> str:
    """Store one message, delete the oldest beyond KEPT, and return the new message's id. Ids sort by time."""
    directory.mkdir(parents=True, exist_ok=True)
    microseconds = int(at.timestamp() * 1_000_000)
    mail_id = f"{microseconds:020d}-{os.urandom(4).hex()}"
    # Store the envelope in extra headers, as other mail stores do.
    envelope = f"X-Envelope-From: {_one_line(sender)}\r\nX-Envelope-To: {_one_line(', '.join(recipients))}\r\n"
    temporary = directory / f"{mail_id}.new"
    temporary.write_bytes(envelope.encode() + content)
    temporary.replace(directory / f"{mail_id}.eml")
    for path in _files(directory)[MAX_MAILS:]:
        path.unlink(missing_ok=True)
    return mail_id


def list_mails(directory: Path, limit: int = MAX_MAILS) -> list[Mail]:
    """Return the stored mails, newest first. A mail that is deleted meanwhile is omitted."""
    mails = []
    for path in itertools.islice(_files(directory), limit):
        try:
            mails.append(_summary(path.stem, _parse(path)))
        except FileNotFoundError:
            continue
    return mails


def read_mail(directory: Path, mail_id: str) -> tuple[Mail, str]:
    """Return the summary and the text of a mail.

    Raises:
        NoSuchMail: The id is unknown, or the mail was deleted.
    """
    if not _ID.fullmatch(mail_id):
        raise NoSuchMail(mail_id)
    try:
        message = _parse(directory / f"{mail_id}.eml")
    except FileNotFoundError:
        raise NoSuchMail(mail_id) from None
    body = message.get_body(("plain", "html"))
    text = str(body.get_content()) if body is not None else ""
    return _summary(mail_id, message), text.replace("\r\n", "\n")


def _files(directory: Path) -> list[Path]:
    return sorted((path for path in directory.glob("*.eml") if _ID.fullmatch(path.stem)), reverse=True)


def _parse(path: Path) -> EmailMessage:
    return email.message_from_bytes(path.read_bytes(), policy=email.policy.default)


def _summary(mail_id: str, message: EmailMessage) -> Mail:
    return Mail(
        id=mail_id,
        at=datetime.fromtimestamp(int(mail_id[:20]) / 1_000_000, UTC),
        sender=str(message["X-Envelope-From"] or message["From"] or ""),
        recipients=tuple(address for _, address in email.utils.getaddresses([str(message["X-Envelope-To"] or "")])),
        subject=str(message["Subject"] or ""),
    )


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f]+", " ", text)
