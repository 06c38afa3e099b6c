import pytest

from monitoring.models import Channel, ChannelKind
from monitoring.notify.mail.transport import MailTransport
from monitoring.notify.message import BadChannel
from monitoring.reasons.notify import NotifyReason
from tests.monitoring.notify.messages import AT, message

MESSAGE = message(job='flights "<by>" & route')
CHANNEL = Channel(name="m", kind=ChannelKind.MAIL, settings={"to": ["ops@example.org", "ada@example.org"]})


def part(mail, kind):
    return next(p.get_payload(decode=True).decode() for p in mail.walk() if p.get_content_type() == kind)


def test_the_mail_has_the_sentence_and_a_link_to_the_incident(mail_sink):
    MailTransport().send(CHANNEL, MESSAGE, AT)
    (mail,) = mail_sink.mails
    assert mail["To"] == "ops@example.org, ada@example.org"
    for kind in ("text/plain", "text/html"):
        assert MESSAGE.lead.text() in part(mail, kind)
        assert MESSAGE.lead.incident_url in part(mail, kind)


def test_a_jobs_name_cannot_write_html(mail_sink):
    MailTransport().send(CHANNEL, MESSAGE, AT)
    html = part(mail_sink.mails[0], "text/html")
    assert "<by>" not in html
    assert "&lt;by&gt;" in html


def test_a_line_break_in_a_name_cannot_add_a_header(mail_sink):
    MailTransport().send(CHANNEL, message(job="x\r\nBcc: eve@example.org"), AT)
    (mail,) = mail_sink.mails
    assert mail["Bcc"] is None


def test_a_permanent_refusal_of_every_recipient_is_permanent(mail_sink):
    mail_sink.recipient_answer = "550 no such user"
    answer = MailTransport().send(CHANNEL, MESSAGE, AT)
    assert answer.permanent
    assert answer.answer.code is NotifyReason.RECIPIENTS_REFUSED
    assert "ops@example.org: 550 no such user" in answer.answer.args["refused"]


def test_every_recipient_refused_for_now_is_not(mail_sink):
    mail_sink.recipient_answer = "450 greylisted"
    assert not MailTransport().send(CHANNEL, MESSAGE, AT).permanent


@pytest.mark.parametrize("to", [None, [], "ops@example.org", ["nobody"]])
def test_recipients_must_be_mail_addresses(to):
    with pytest.raises(BadChannel, match=r"^to is"):
        MailTransport().check(Channel(name="m", kind=ChannelKind.MAIL, settings={"to": to}))


def test_the_server_of_the_channel_overrides_the_settings(mail_sink, settings, closed_port):
    settings.EMAIL_PORT = closed_port
    url = f"smtp://127.0.0.1:{mail_sink.port}"
    channel = Channel(name="m", kind=ChannelKind.MAIL, settings=CHANNEL.settings, secret=url, allow_private=True)
    MailTransport().send(channel, MESSAGE, AT)
    assert len(mail_sink.mails) == 1


@pytest.mark.parametrize("url", ["mail.example.org", "http://mail.example.org", "smtp://", "smtp://host:99999999"])
def test_an_invalid_server_address_is_refused_without_its_password(url):
    channel = Channel(name="m", kind=ChannelKind.MAIL, settings=CHANNEL.settings, secret=url)
    with pytest.raises(BadChannel, match=r"^smtp is .*smtp\+tls://user:password@mail\.example\.org"):
        MailTransport().check(channel)
