"""Log-in at a provider that speaks OpenID Connect: authorization code with PKCE, through Authlib.

A person is known by issuer and subject, never by name or mail: these can be given to somebody else. An account of
Waymark's own is not taken over by one of the provider that has the same name; the provider's gets another.
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
    """The message says to the person why not."""


@dataclass(frozen=True)
class Person:
    """Who the provider says it is. `role` None: the provider's groups decide nothing."""

    issuer: str
    subject: str
    name: str
    email: str
    role: str | None


def to_provider(request: HttpRequest, back: str) -> HttpResponse:
    """Raises NotLoggedIn when the provider does not answer."""
    try:
        response: HttpResponse = _client().authorize_redirect(request, back)
    except (RequestException, ValueError) as error:
        raise NotLoggedIn(
            _("%(provider)s does not answer. Try again later.") % {"provider": settings.OIDC_NAME}
        ) from error
    return response


def from_provider(request: HttpRequest) -> Person:
    """Of the request with which the provider sent the browser back. Raises NotLoggedIn."""
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
    """The account of that person, made at the first log-in; its role as the provider's groups say, where they do.

    Raises NotLoggedIn for one that was deactivated.
    """
    who = "oidc"
    account = Account.objects.filter(oidc_issuer=person.issuer, oidc_subject=person.subject).first()
    if account is None:
        made = accounts.create(_free_name(person), person.email, None, person.role or settings.OIDC_FIRST_ROLE, who)
        Account.objects.filter(user=made).update(oidc_issuer=person.issuer, oidc_subject=person.subject)
        return made
    user = account.user
    if not user.is_active:
        raise NotLoggedIn(_("This account is not active. Ask an administrator."))
    try:
        accounts.change(user, person.role or accounts.role_word(user), person.email or user.email, who)
    except accounts.NotAllowed as stays:
        raise NotLoggedIn(str(stays)) from stays
    return user


def _person(claims: Mapping[str, Any]) -> Person:
    """Authlib has checked signature, audience, nonce and times."""
    issuer, subject = str(claims.get("iss", "")), str(claims.get("sub", ""))
    if issuer != settings.OIDC_ISSUER or not subject or len(subject) > 255:
        raise NotLoggedIn(_("The answer is not of the provider that is configured here."))
    name = str(claims.get("preferred_username") or claims.get("email") or subject)
    verified = claims.get("email_verified", True) is not False
    email = str(claims.get("email") or "") if verified else ""
    return Person(issuer, subject, name, email[:254], _role(claims.get(settings.OIDC_GROUPS_CLAIM)))


def _role(claim: object) -> str | None:
    """Raises NotLoggedIn for who is in none of the groups that may."""
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


def _free_name(person: Person) -> str:
    allowed = "".join(c if c.isalnum() or c in "@.+-_" else "_" for c in person.name)[:140] or "user"
    alike = User.objects.filter(username__istartswith=allowed)
    taken = {name.lower() for name in alike.values_list("username", flat=True)}
    numbered = (f"{allowed}-{number}" for number in range(2, len(taken) + 3))
    return allowed if allowed.lower() not in taken else next(n for n in numbered if n.lower() not in taken)


def _client() -> Any:
    return _registered(settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET)


@cache
def _registered(issuer: str, client_id: str, client_secret: str) -> Any:
    """Its metadata and keys are read once a process, keys again when a token has an unknown one."""
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
