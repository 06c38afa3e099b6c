"""Secrets are encrypted in tables, hidden in representations, and decrypted with any configured key."""

from __future__ import annotations

import copy
import json
import logging
from io import StringIO

import pytest
from cryptography.fernet import Fernet
from django.core import serializers
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings

from dashboard.settings import _sealing_keys
from monitoring.models import AuditEntry, Cluster
from monitoring.reasons.credentials import CredentialReason
from monitoring.secret import PREFIX, Secret, SecretUnreadable, seal, unseal
from tests.monitoring.conftest import Rows

PLAIN = "s3cret-of-the-cluster"


def in_the_table(table: str = "monitoring_cluster", column: str = "token") -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM {table}")
        return cursor.fetchone()[0]


def manage(*arguments: str) -> str:
    out = StringIO()
    call_command("secrets", *arguments, stdout=out)
    return out.getvalue()


def test_the_table_has_the_encrypted_secret_and_the_row_returns_it(rows: Rows) -> None:
    rows.cluster(token=PLAIN)
    assert in_the_table().startswith(PREFIX)
    assert PLAIN not in in_the_table()
    assert Cluster.objects.get().token.reveal() == PLAIN


def test_none_is_stored_as_none(rows: Rows) -> None:
    cluster = rows.cluster()
    assert (in_the_table(), bool(cluster.token), cluster.token.reveal()) == ("", False, "")


def test_a_secret_is_not_shown_in_representations(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    secret = rows.cluster(token=PLAIN).token
    with caplog.at_level(logging.INFO):
        logging.getLogger("x").info("%s %r", secret, secret)
    shown = f"{secret} {secret!r} {[secret]} {caplog.text} {copy.copy(secret)}"
    assert PLAIN not in shown
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_a_row_cannot_be_found_by_its_secret(rows: Rows) -> None:
    rows.cluster(token=PLAIN)
    with pytest.raises(FieldError, match="Unsupported lookup 'exact'"):
        Cluster.objects.filter(token=PLAIN).exists()


def test_saving_a_row_leaves_a_secret_that_no_key_opens_as_it_was(rows: Rows, settings: Settings) -> None:
    rows.cluster(token=PLAIN)
    before = in_the_table()
    settings.SECRET_KEY = "another one"
    cluster = Cluster.objects.get()
    assert cluster.token.problem() == CredentialReason.NO_MATCHING_KEY()
    cluster.save()
    assert in_the_table() == before


def test_the_key_that_is_set_later_seals_and_the_old_one_still_opens(rows: Rows, settings: Settings) -> None:
    rows.cluster(token=PLAIN)
    settings.WAYMARK_SECRET_KEYS = [Fernet.generate_key().decode()]
    assert Cluster.objects.get().token.reveal() == PLAIN


def test_after_rekeying_the_old_key_is_needed_no_more(rows: Rows, settings: Settings) -> None:
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    settings.WAYMARK_SECRET_KEYS = [old]
    rows.cluster(token=PLAIN)
    settings.WAYMARK_SECRET_KEYS = [new, old]
    assert manage("rekey") == "Secrets encrypted with the first key: 1. You can remove the older keys.\n"
    settings.WAYMARK_SECRET_KEYS = [new]
    assert Cluster.objects.get().token.reveal() == PLAIN
    assert manage("check") == "The configured keys can decrypt all stored secrets.\n"
    assert AuditEntry.objects.get().details == {"sealed": 1, "unreadable": 0}


def test_a_value_that_no_key_decrypts_is_reported_and_kept(rows: Rows, settings: Settings) -> None:
    rows.cluster(name="lost", token=PLAIN)
    before = in_the_table()
    settings.SECRET_KEY = "another one"
    rows.cluster(name="kept", token=PLAIN)
    with pytest.raises(CommandError, match="cluster lost: token: The stored secret cannot be decrypted"):
        manage("rekey")
    with pytest.raises(CommandError, match="cluster lost: token"):
        manage("check")
    assert Cluster.objects.get(name="lost").token.stored() == before


def test_a_text_that_was_stored_unencrypted_is_reported(rows: Rows) -> None:
    rows.cluster()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE monitoring_cluster SET token = 'in plain'")
    assert Cluster.objects.get().token.problem() == CredentialReason.NOT_SEALED()


def test_without_a_key_nothing_is_sealed(settings: Settings) -> None:
    sealed = seal(PLAIN)
    settings.SECRET_KEY_IS_SECRET = False
    with pytest.raises(ImproperlyConfigured, match="WAYMARK_SECRET_KEY"):
        seal(PLAIN)
    with pytest.raises(SecretUnreadable, match="WAYMARK_SECRET_KEY"):
        unseal(sealed)


def test_a_modified_secret_is_not_decrypted() -> None:
    sealed = seal(PLAIN)
    with pytest.raises(SecretUnreadable):
        unseal(sealed[:-4] + ("AAA=" if sealed[-4:] != "AAA=" else "BBB="))


def test_a_dump_contains_the_encrypted_secret_and_can_be_loaded(rows: Rows) -> None:
    cluster = rows.cluster(token=PLAIN)
    dump = serializers.serialize("json", [cluster])
    assert PLAIN not in dump
    (loaded,) = serializers.deserialize("json", dump)
    assert loaded.object.token == Secret(PLAIN)


def test_a_new_key_is_one_and_a_wrong_one_is_refused_without_being_shown() -> None:
    key = manage("new-key").strip()
    assert _sealing_keys("WAYMARK_SECRET_KEYS", f" {key},") == [key]
    with pytest.raises(ImproperlyConfigured, match="WAYMARK_SECRET_KEYS: key 2 of 2 is not allowed") as raised:
        _sealing_keys("WAYMARK_SECRET_KEYS", f"{key}, hunter2")
    assert "hunter2" not in str(raised.value)
