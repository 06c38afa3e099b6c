"""Log-in through an OpenID Connect provider: authorization code flow with PKCE, through Authlib.

Issuer and subject identify a person. Name and mail address do not, because the provider can reassign them. If an
account with the person's name exists already, the person's new account gets another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from authlib.integrations.base_client import OAuthError
from authlib.integrations.django_client import OAuth
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from joserfc.errors import JoseError
from requests import RequestException

from dashboard.access import accounts
from monitoring.models import Account

WAIT_S = 10


class NotLoggedIn(Exception):
    """The log-in failed. The message gives the person the reason."""


@dataclass(frozen=True)
class Person:
    """A person as the provider reports them. `role` is None if groups of the provider do not set roles."""

    issuer: str
    subject: str
    name: str
    email: str
    role: str | None


def to_provider(request: HttpRequest, back: str) -> HttpResponse:
    """Return a redirect to the provider. Raise NotLoggedIn if the provider does not respond."""
    try:
        response: HttpResponse = _client().authorize_redirect(request, back)
    except (RequestException, ValueError) as error:
        raise NotLoggedIn(
            _("%(provider)s does not answer. Try again later.") % {"provider": settings.OIDC_NAME}
        ) from error
    return response


def from_provider(request: HttpRequest) -> Person:
    """Return the person from the request that the provider redirected. Raise NotLoggedIn if it is not valid."""
    expected = {
        "iss": {"essential": True, "value": settings.OIDC_ISSUER},
        "aud": {"essential": True, "value": settings.OIDC_CLIENT_ID},
    }
    try:
        token = _client().authorize_access_token(request, claims_options=expected)
    except OAuthError as error:
        why = {"provider": settings.OIDC_NAME, "error": error.description or error.error}
        raise NotLoggedIn(_("%(provider)s did not log you in: %(error)s.") % why) from error
    except (RequestException, JoseError, ValueError, KeyError) as error:
        why = {"provider": settings.OIDC_NAME}
        raise NotLoggedIn(_("What %(provider)s answered cannot be trusted. Try again.") % why) from error
    return _person(token.get("userinfo") or {})


@transaction.atomic
def user_of(person: Person) -> User:
    """Return the account of a person, with the role that the provider's groups set. The first log-in creates it.

    Raises:
        NotLoggedIn: the account was deactivated, or its role cannot change.
    """
    who = "oidc"
    account = Account.objects.filter(oidc_issuer=person.issuer, oidc_subject=person.subject).first()
    if account is None:
        made = accounts.create(_unused_name(person), person.email, None, person.role or settings.OIDC_FIRST_ROLE, who)
        Account.objects.filter(user=made).update(oidc_issuer=person.issuer, oidc_subject=person.subject)
        return made
    user = account.user
    if not user.is_active:
        raise NotLoggedIn(_("This account is not active. Ask an administrator."))
    try:
        accounts.change(user, person.role or accounts.role_name(user), person.email or user.email, who)
    except accounts.NotAllowed as stays:
        raise NotLoggedIn(str(stays)) from stays
    return user


def _person(claims: Mapping[str, Any]) -> Person:
    """Return the person from the claims. Authlib has already checked signature, audience, nonce and times."""
    issuer, subject = str(claims.get("iss", "")), str(claims.get("sub", ""))
    if issuer != settings.OIDC_ISSUER or not subject or len(subject) > 255:
        raise NotLoggedIn(_("The response comes from another identity provider than the configured one."))
    name = str(claims.get("preferred_username") or claims.get("email") or subject)
    verified = claims.get("email_verified", True) is not False
    email = str(claims.get("email") or "") if verified else ""
    return Person(issuer, subject, name, email[:254], _role(claims.get(settings.OIDC_GROUPS_CLAIM)))


def _role(claim: object) -> str | None:
    """Return the role for the groups in a claim. Raise NotLoggedIn if the person is in no group that may log in."""
    groups = {str(each) for each in claim} if isinstance(claim, list | tuple) else {str(claim)} if claim else set()
    by_role = (
        ("admin", settings.OIDC_ADMIN_GROUPS),
        ("operator", settings.OIDC_OPERATOR_GROUPS),
        ("viewer", settings.OIDC_VIEWER_GROUPS),
    )
    if not any(named for _, named in by_role):
        return None
    found = next((role for role, named in by_role if groups & set(named)), None)
    if found is None and settings.OIDC_VIEWER_GROUPS:
        raise NotLoggedIn(_("You are in none of the groups that may use Waymark. Ask an administrator."))
    return found or str(settings.OIDC_FIRST_ROLE)


def _unused_name(person: Person) -> str:
    allowed = "".join(c if c.isalnum() or c in "@.+-_" else "_" for c in person.name)[:140] or "user"
    alike = User.objects.filter(username__istartswith=allowed)
    taken = {name.lower() for name in alike.values_list("username", flat=True)}
    numbered = (f"{allowed}-{number}" for number in range(2, len(taken) + 3))
    return allowed if allowed.lower() not in taken else next(n for n in numbered if n.lower() not in taken)


def _client() -> Any:
    return _registered(settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET)


@cache
def _registered(issuer: str, client_id: str, client_secret: str) -> Any:
    """Return the client of the provider.

    Each process reads the provider's metadata and keys once. If a token has an unknown key, the keys are read again.
    """
    registry = OAuth()
    registry.register(
        "oidc",
        client_id=client_id,
        client_secret=client_secret or None,
        server_metadata_url=f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        client_kwargs={
            "scope": " ".join(settings.OIDC_SCOPES),
            "code_challenge_method": "S256",
            "default_timeout": WAIT_S,
            "token_endpoint_auth_method": "client_secret_basic" if client_secret else "none",
        },
    )
    return registry.oidc
