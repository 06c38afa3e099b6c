from __future__ import annotations

import asyncio
import smtplib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

import pytest
from django.core.mail import EmailMultiAlternatives
from django.core.mail.backends.smtp import EmailBackend

from dashboard.stack import mailbox
from dashboard.stack.mailbox import NoSuchMail, list_mails, read_mail, store_mail
from dashboard.stack.mailsink import LogIn, sink
from dashboard.stack.ports import any_free
from monitoring.notify.mail.address import parse_server

NOW = datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(params=[None])
def smtp_port(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    port = any_free()
    listening, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with await sink("127.0.0.1", port, tmp_path, request.param):
            listening.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert listening.wait(10)
    yield port
    stop.set()
    thread.join(10)


def test_mail_sent_over_smtp_can_be_listed_and_read(smtp_port: int, tmp_path: Path) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "waymark@localhost", "ann@localhost", "3 failed – “Seats”"
    message.set_content("Three checkpoints failed.\nÜber all.")
    with smtplib.SMTP("127.0.0.1", smtp_port, timeout=10) as client:
        client.send_message(message, to_addrs=["ann@localhost", "bob@localhost"])
    (mail,) = list_mails(tmp_path)
    assert (mail.sender, mail.recipients) == ("waymark@localhost", ("ann@localhost", "bob@localhost"))
    assert mail.subject == "3 failed – “Seats”"
    assert read_mail(tmp_path, mail.id) == (mail, "Three checkpoints failed.\nÜber all.\n")


LOG_IN = LogIn("waymark", "let-me-in")


@pytest.mark.parametrize("smtp_port", [LOG_IN], indirect=True)
def test_sending_mail_requires_a_login(smtp_port: int, tmp_path: Path) -> None:
    with smtplib.SMTP("127.0.0.1", smtp_port, timeout=10) as client:
        with pytest.raises(smtplib.SMTPSenderRefused, match="530"):
            client.sendmail("a@localhost", ["b@localhost"], "Subject: forged\r\n\r\n")
        for password in ("wrong", ""):
            with pytest.raises(smtplib.SMTPAuthenticationError):
                client.login("waymark", password)
        assert list_mails(tmp_path) == []
        client.login("waymark", "let-me-in")
        client.sendmail("a@localhost", ["b@localhost"], "Subject: ours\r\n\r\n")
    assert [mail.subject for mail in list_mails(tmp_path)] == ["ours"]


@pytest.mark.parametrize("smtp_port", [LOG_IN], indirect=True)
def test_djangos_mail_logs_in_with_the_address_that_up_makes(smtp_port: int, tmp_path: Path) -> None:
    server = parse_server(f"smtp://waymark:let-me-in@127.0.0.1:{smtp_port}")
    connection = EmailBackend(server.host, server.port, server.user, server.password)
    EmailMultiAlternatives("3 failed", "Seats", "waymark@localhost", ["a@localhost"], connection=connection).send()
    assert [mail.subject for mail in list_mails(tmp_path)] == ["3 failed"]


def test_mails_are_listed_newest_first_and_the_oldest_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "MAX_MAILS", 3)
    for number in range(5):
        content = f"Subject: {number}\r\n\r\n".encode()
        store_mail(tmp_path, content, "a@x", ["b@x"], NOW + timedelta(seconds=number))
    assert [mail.subject for mail in list_mails(tmp_path)] == ["4", "3", "2"]
    assert list_mails(tmp_path)[0].at == NOW + timedelta(seconds=4)


def test_no_mail_is_an_empty_list(tmp_path: Path) -> None:
    assert list_mails(tmp_path / "none") == []


@pytest.mark.parametrize("mail_id", ["../secret-key", "", "0" * 20 + "-zzzzzzzz", "1" * 20 + "-00000000"])
def test_invalid_id_finds_nothing(tmp_path: Path, mail_id: str) -> None:
    with pytest.raises(NoSuchMail):
        read_mail(tmp_path, mail_id)


def test_envelope_cannot_inject_headers(tmp_path: Path) -> None:
    mail_id = store_mail(tmp_path, b"Subject: s\r\n\r\nbody", "a@x\r\nSubject: forged", ["b@x"], NOW)
    mail, text = read_mail(tmp_path, mail_id)
    assert (mail.subject, text.strip()) == ("s", "body")
