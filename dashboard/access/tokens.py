"""Create, find and revoke tokens of the REST API. Their secrets are stored only as digests."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from monitoring import audit
from monitoring.models import ApiToken, Cluster

PREFIX = "wmk_"
MOST_PER_USER = 50
LAST_USED_PRECISION = timedelta(minutes=1)
_SHOWN = len(PREFIX) + 6


class BadToken(ValueError):
    """A token cannot be created with these values. The error names the field and what is allowed."""

    def __init__(self, field: str, allowed: str) -> None:
        super().__init__(f"{field}: {allowed}")
        self.field = field
        self.allowed = allowed


@dataclass(frozen=True)
class CreatedToken:
    """A new token. Its `secret` is shown once and not stored."""

    token: ApiToken
    secret: str


@transaction.atomic
def make(
    user: User,
    name: str,
    may_write: bool,
    expires_at: datetime | None,
    by: str,
    now: datetime,
    reports_for: Cluster | None = None,
) -> CreatedToken:
    """Create a token. With `reports_for`, it can do nothing but report for this cluster.

    Raises:
        BadToken: The user has too many valid tokens, or one with this name.
    """
    valid = ApiToken.objects.filter(user=user, revoked_at=None).exclude(expires_at__lte=now)
    if valid.count() >= MOST_PER_USER:
        too_many = _("You have %(most)s valid tokens. This is the maximum. Revoke one first.") % {"most": MOST_PER_USER}
        raise BadToken("name", too_many)
    secret = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken(
        user=user, name=name, may_write=may_write, start=secret[:_SHOWN], created_at=now, expires_at=expires_at
    )
    token.reports_for = reports_for
    token.digest = digest_of(secret)
    try:
        with transaction.atomic():
            token.save()
    except IntegrityError:
        raise BadToken("name", _("You already have a token with this name. Choose a different name.")) from None
    until = expires_at.isoformat() if expires_at else None
    rights: dict[str, Any] = {"may_write": may_write}
    if reports_for is not None:
        rights["reports_for"] = reports_for.name
    audit.record(by, "token.make", f"token {name} of {user}", **rights, expires_at=until, start=token.start)
    return CreatedToken(token, secret)


def find_token(secret: str, now: datetime) -> ApiToken | None:
    """Return the valid token with this secret and store the time of its use. None if its user is not active."""
    if not secret.startswith(PREFIX):
        return None
    token = ApiToken.objects.select_related("user", "reports_for").filter(digest=digest_of(secret)).first()
    if token is None or not token.is_valid(now) or not token.user.is_active:
        return None
    if token.last_used_at is None or now - token.last_used_at >= LAST_USED_PRECISION:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


@transaction.atomic
def revoke(token: ApiToken, by: str, now: datetime) -> bool:
    """Revoke a token. Return False if it was already revoked."""
    revoked = ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now, revoked_by=by)
    if revoked:
        audit.record(by, "token.revoke", f"token {token.name} of {token.user}", start=token.start)
    return bool(revoked)


def digest_of(secret: str) -> str:
    """Return the SHA-256 digest. A slow hash is not needed, because a secret of 256 random bits cannot be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()
