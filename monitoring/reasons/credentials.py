"""Reasons why a stored secret, a certificate or a key cannot be used."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import ReasonCode


class CredentialReason(ReasonCode):
    NOT_SEALED = (
        "credentials.not-sealed",
        _("The stored secret is not sealed: somebody wrote it past Waymark. Enter it again."),
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
        _("A secret is to be stored or read: set WAYMARK_SECRET_KEYS or WAYMARK_SECRET_KEY."),
    )
    UNREADABLE = "credentials.unreadable", _("What {server} is asked with cannot be read. {why}")

    BAD_CA_BUNDLE = "credentials.bad-ca-bundle", _("These are no certificates in PEM form: {error}.")
    PAIR_INCOMPLETE = (
        "credentials.pair-incomplete",
        _("A client's certificate and its key belong together: one of them is missing."),
    )
    BAD_CERTIFICATE = (
        "credentials.bad-certificate",
        _("This is no certificate in PEM form (BEGIN CERTIFICATE)."),
    )
    BAD_KEY = "credentials.bad-key", _("This is no private key in PEM form.")
    KEY_ENCRYPTED = (
        "credentials.key-encrypted",
        _("This is no private key in PEM form. It is encrypted: give it without a password."),
    )
    PAIR_MISMATCH = "credentials.pair-mismatch", _("Certificate and key do not belong together: {error}.")
