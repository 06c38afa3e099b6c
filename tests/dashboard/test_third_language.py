"""A further language is one catalogue: its pages, scripts, mails and reasons need no code and no migration."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from monitoring.models import Channel
from monitoring.notify.channels import sample_message
from monitoring.notify.wording.texts import text_of
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.reason import render

GERMAN = {
    "": "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=n != 1;\n",
    "Skip to content": "Zum Inhalt",
    "Session expired": "Sitzung abgelaufen",
    "min": "Min.",
    "axis\x04%b %-d": "%-d. %b",
    "Job:      %(job)s on cluster %(cluster)s": "Job:      %(job)s auf Cluster %(cluster)s",
    "message\x04{event}, {severity}, {at}": "{at}: {event}",
    "message\x04[{label}] {sentence}": "[{label}] {kind} ({severity})",
    "message\x04warning": "Warnung",
    AlertReason.TEST.text: "Dies ist ein Test des Kanals {channel}.",
}


@pytest.fixture(autouse=True)
def _catalogue(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "django.mo").write_bytes(compiled(GERMAN))
    settings.LOCALE_PATHS = [tmp_path, *settings.LOCALE_PATHS]
    settings.LANGUAGES = [*settings.LANGUAGES, ("de", "Deutsch")]


def compiled(texts: Mapping[str, str]) -> bytes:
    """Return the texts in the format of gettext's .mo files: a header, two tables of lengths and offsets, the texts."""
    pairs = sorted((key.encode(), value.encode()) for key, value in texts.items())
    listed = [key for key, _ in pairs] + [value for _, value in pairs]
    tables, stored = b"", b""
    for each in listed:
        tables += struct.pack("<II", len(each), 28 + 8 * len(listed) + len(stored))
        stored += each + b"\0"
    return struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0) + tables + stored


def test_a_page_and_its_scripts_are_in_the_language(viewer: Client) -> None:
    assert 'name="language" value="de"' in viewer.get(reverse("fleet")).content.decode()
    viewer.post(reverse("set_language"), {"language": "de", "next": "/"})
    page = viewer.get(reverse("fleet")).content.decode()
    assert '<html lang="de"' in page
    assert "Zum Inhalt" in page
    texts = json.loads(re.findall(r'<script id="script-texts" type="application/json">(.*?)</script>', page)[0])
    assert texts["expired"] == "Sitzung abgelaufen"
    assert texts["units"]["min"] == "Min."
    assert (texts["dates"]["dayMonth"], texts["dates"]["months"][2]) == ("%-d. %b", "März")
    assert texts["copied"] == "Copied"  # not in this catalogue


def test_the_wall_board_has_the_texts_of_its_scripts(viewer: Client) -> None:
    assert 'id="script-texts"' in viewer.get(reverse("fleet"), {"kiosk": "1"}).content.decode()


def test_a_reason_is_in_the_language() -> None:
    assert render(AlertReason.TEST(channel="on-call"), "de") == "Dies ist ein Test des Kanals on-call."


def test_a_channel_sends_mails_in_the_language(operator: Client, now: datetime) -> None:
    form = {"name": "on-call", "to": "ops@example.org", "language": "de", "group_wait_s": "10"}
    operator.post(reverse("channel-add", args=["mail"]), {**form, "messages_per_10_min": "10"})
    channel = Channel.objects.get()
    mail = text_of(channel, sample_message("key", channel, now))
    assert mail.subject == "[test] test (Warnung)"
    assert "Dies ist ein Test des Kanals on-call." in mail.body
    assert "Job:      a job auf Cluster a cluster" in mail.body
    assert f"Incident: {now:%Y-%m-%d %H:%M:%S} UTC: test" in mail.body
    assert '<html lang="de"' in mail.html


def test_the_language_needs_no_migration(db: None) -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
