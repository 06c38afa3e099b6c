"""Secrets: encrypted in the database (Fernet: AES-128-CBC with an HMAC), and hidden when printed.

An encrypted text is `fernet:<token>`; "" stays "". The first key of `WAYMARK_SECRET_KEYS` encrypts. All of these keys
decrypt, and so does the key that is derived from Django's SECRET_KEY. If no key is set, the derived key also encrypts.
So keys can be set or changed at any time. `manage.py secrets rekey` encrypts all secrets again with the first key.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Self

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from monitoring.reasons.credentials import CredentialReason
from monitoring.reasons.reason import Reason

PREFIX = "fernet:"
_PURPOSE = b"waymark: secrets at rest"


class SecretUnreadable(Exception):
    """A stored secret cannot be decrypted. `reason` says what to do, without the secret."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Secret:
    """A secret text. Only `reveal` returns it: printed, logged or on a page it shows dots. False if empty.

    An unchanged secret from the database is stored again as it was, so a row can be saved without the key.
    """

    __slots__ = ("_plain", "_stored")

    def __init__(self, plain: str = "") -> None:
        self._plain: str | None = plain
        self._stored: str | None = None

    @classmethod
    def from_stored(cls, stored: str) -> Self:
        secret = cls()
        secret._plain, secret._stored = None if stored else "", stored
        return secret

    def reveal(self) -> str:
        """Return the text. Raise SecretUnreadable."""
        if self._plain is None:
            self._plain = unseal(self._stored or "")
        return self._plain

    def problem(self) -> Reason | None:
        """Return why the secret cannot be decrypted, None if it can."""
        try:
            self.reveal()
        except SecretUnreadable as error:
            return error.reason
        return None

    def stored(self) -> str:
        if self._stored is None:
            self._stored = seal(self._plain or "")
        return self._stored

    def __bool__(self) -> bool:
        return bool(self._stored if self._plain is None else self._plain)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if self.problem() or other.problem():
            return self._stored is not None and self._stored == other._stored
        return self.reveal() == other.reveal()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "••••••••" if self else ""

    def __repr__(self) -> str:
        return "<Secret: set>" if self else "<Secret: empty>"


def seal(plain: str) -> str:
    return PREFIX + _keys().encrypt(plain.encode()).decode() if plain else ""


def unseal(stored: str) -> str:
    """Return the decrypted text. Raise SecretUnreadable."""
    if not stored:
        return ""
    if not stored.startswith(PREFIX):
        raise SecretUnreadable(CredentialReason.NOT_SEALED())
    try:
        return _keys().decrypt(stored.removeprefix(PREFIX)).decode()
    except ImproperlyConfigured:
        raise SecretUnreadable(CredentialReason.NO_KEY()) from None
    except InvalidToken:
        raise SecretUnreadable(CredentialReason.NO_MATCHING_KEY()) from None


def resealed(stored: str) -> str:
    """Return `stored`, encrypted again with the first key. Raise SecretUnreadable."""
    return seal(unseal(stored))


def new_key() -> str:
    return Fernet.generate_key().decode()


def _keys() -> MultiFernet:
    """Return the keys. Raise ImproperlyConfigured if there are none: a public SECRET_KEY does not count."""
    roots = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS) if settings.SECRET_KEY_IS_SECRET else ()
    if not settings.WAYMARK_SECRET_KEYS and not roots:
        raise ImproperlyConfigured(str(CredentialReason.NO_KEY()))
    return _keyring(tuple(settings.WAYMARK_SECRET_KEYS), roots)


@lru_cache(maxsize=8)
def _keyring(keys: Sequence[str], roots: Sequence[str]) -> MultiFernet:
    return MultiFernet([*map(Fernet, keys), *map(_derived, roots)])


def _derived(root: str) -> Fernet:
    key = HKDF(SHA256(), length=32, salt=None, info=_PURPOSE).derive(root.encode())
    return Fernet(base64.urlsafe_b64encode(key))
