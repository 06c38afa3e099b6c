"""Reasons why a stored secret, a certificate or a key cannot be used."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import ReasonCode


class CredentialReason(ReasonCode):
    NOT_SEALED = (
        "credentials.not-sealed",
        _("The stored secret is not encrypted, so Waymark did not write it. Enter the secret again."),
    )
    NO_MATCHING_KEY = (
        "credentials.no-matching-key",
        _(
            "The stored secret cannot be decrypted with the configured keys. Add the old key to "
            "WAYMARK_SECRET_KEYS (or WAYMARK_SECRET_KEY), or enter the secret again."
        ),
    )
    NO_KEY = (
        "credentials.no-key",
        _("Waymark needs a key to store or read secrets: set WAYMARK_SECRET_KEYS or WAYMARK_SECRET_KEY."),
    )
    UNREADABLE = "credentials.unreadable", _("The credentials for {server} cannot be read. {why}")

    BAD_CA_BUNDLE = "credentials.bad-ca-bundle", _("These are not certificates in PEM format: {error}.")
    PAIR_INCOMPLETE = (
        "credentials.pair-incomplete",
        _("A client certificate and its key belong together: one of them is missing."),
    )
    BAD_CERTIFICATE = (
        "credentials.bad-certificate",
        _("This is not a certificate in PEM format (BEGIN CERTIFICATE)."),
    )
    BAD_KEY = "credentials.bad-key", _("This is not a private key in PEM format.")
    KEY_ENCRYPTED = (
        "credentials.key-encrypted",
        _("This private key is encrypted. Enter the key without a password."),
    )
    PAIR_MISMATCH = "credentials.pair-mismatch", _("The certificate and the key do not belong together: {error}.")
