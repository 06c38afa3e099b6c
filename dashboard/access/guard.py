"""At every door: what the reader may not see is not there; what is there says what the reader may do with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from dashboard.access.reach import NOWHERE, Reach, reach_of
from dashboard.access.roles import Role
from dashboard.access.subjects import ADMINISTERED, API, NOTHING, OWN, Absent, Archived, Subject, subject_of
from monitoring.models import ApiToken, Job


@dataclass
class Access:
    """What the sender of a request reaches, and as what. `most`: what the token that was sent allows at most."""

    reach: Reach = NOWHERE
    subject: Subject = NOTHING
    token: ApiToken | None = None

    @property
    def most(self) -> Role:
        return Role.VIEWER if self.token and not self.token.may_write else Role.ADMIN

    def role_on(self, subject: Subject) -> Role | None:
        role = self.reach.role_on(subject.job_id, subject.cluster_id)
        return None if role is None else min(role, self.most)

    @property
    def role(self) -> Role | None:
        """On what the address is about."""
        return self.role_on(self.subject)

    def hides(self, subject: Subject) -> bool:
        """Whether the reader is to know nothing of it."""
        if self.reach.sees_everything:
            return False
        return subject.of_all or (subject != NOTHING and self.role_on(subject) is None)

    def may(self, role: Role) -> bool:
        return self.role is not None and self.role >= role

    def may_on(self, role: Role, job_id: int | None, cluster_id: int | None) -> bool:
        """As `may`, on what a row of a list is about."""
        found = self.role_on(Subject(job_id, cluster_id))
        return found is not None and found >= role

    def may_somewhere(self, role: Role) -> bool:
        """On something: what a list or a form for all of them is shown for. On what, each row says."""
        roles = [self.reach.everywhere, *self.reach.clusters.values(), *self.reach.jobs.values()]
        return max((min(found, self.most) for found in roles if found), default=Role.VIEWER) >= role


class _Carrier(Protocol):
    waymark_access: Access


def access_of(request: HttpRequest) -> Access:
    """Read once a request."""
    found = getattr(request, "waymark_access", None)
    if found is None:
        found = Access(reach_of(request.user))
        set_access(request, found)
    return found


def set_access(request: HttpRequest, access: Access) -> None:
    carrier: _Carrier = request  # type: ignore[assignment]
    carrier.waymark_access = access


def reach_at(request: HttpRequest) -> Reach:
    return access_of(request).reach


def require(request: HttpRequest, role: Role, why: str = "") -> None:
    """Raises PermissionDenied where the reader's role on what the address is about is lower."""
    if not access_of(request).may(role):
        raise PermissionDenied(why or refusal(access_of(request), role))


def require_on(request: HttpRequest, role: Role, job_id: int | None, cluster_id: int | None) -> None:
    """As `require`, on what a form or a body names. What the reader may not see is not there."""
    found = access_of(request).role_on(Subject(job_id, cluster_id))
    if found is None:
        raise Http404
    if found < role:
        raise PermissionDenied(refusal(access_of(request), role))


def require_somewhere(request: HttpRequest, role: Role) -> None:
    """Raises PermissionDenied for a reader who has that role nowhere; on what, the form will say."""
    access = access_of(request)
    if not access.may_somewhere(role):
        raise PermissionDenied(refusal(access, role))


def settle(request: HttpRequest, job: Job) -> None:
    """Say which job the archived row belongs to that the address names. Raise Http404 if the reader may not see it."""
    access = access_of(request)
    access.subject = Subject(job.pk, job.cluster_id)
    if access.hides(access.subject):
        raise Http404


def refusal(access: Access, role: Role) -> str:
    if access.token and access.most < role:
        return _("This token can only read. Create a token that can write.")
    if role is Role.ADMIN:
        return _("Only an administrator can do this. Ask an administrator.")
    return _("Your account is read-only here. Ask an operator to do this, or an administrator for the role operator.")


def actor_of(request: HttpRequest) -> str:
    """As the audit and the rows name whoever acts."""
    token = access_of(request).token
    name = request.user.get_username()
    return f"{name} (token {token.name})"[:150] if token else name


def _require_to_change(request: HttpRequest, route: str) -> None:
    """Before the API looks at the body. What a body names, its operation asks for, with `require_on`."""
    access = access_of(request)
    if route.removeprefix(API).startswith(OWN):
        if access.most < Role.OPERATOR:
            raise PermissionDenied(refusal(access, Role.OPERATOR))
        return
    if access.reach.sees_everything or access.subject != NOTHING or access.most < Role.OPERATOR:
        require(request, Role.ADMIN if route.removeprefix(API).startswith(ADMINISTERED) else Role.OPERATOR)


def what_the_reader_may(request: HttpRequest) -> dict[str, object]:
    """For templates: of what the page is about `may_act` and `may_administer`; for lists of many jobs
    `may_act_somewhere`, and `access` for the filter `acts_on` at each row. `may_see_channels`: the pages of channels,
    and what their receivers answer."""
    access = access_of(request) if hasattr(request, "user") else Access()
    return {
        "may_act": access.may(Role.OPERATOR),
        "may_administer": access.may(Role.ADMIN),
        "may_act_somewhere": access.may_somewhere(Role.OPERATOR),
        "may_see_channels": access.reach.sees_everything,
        "access": access,
    }


Answer = Callable[[HttpRequest], HttpResponse]
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class guard:  # noqa: N801 - named in MIDDLEWARE like the functions beside it
    """Middleware, after the one that knows who asks."""

    def __init__(self, get_response: Answer) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Raises Http404 where a view answers about an archived row without `settle`."""
        response = self._get_response(request)
        access = getattr(request, "waymark_access", None)
        if access is not None and access.hides(access.subject):
            raise Http404
        return response

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: dict[str, Any]) -> None:
        """Raises Http404 for what may not be seen, whether or not it is there."""
        match = request.resolver_match
        if match is None or not request.user.is_authenticated:
            return
        subject = subject_of(match.route, kwargs)
        access = access_of(request)
        if isinstance(subject, Archived):
            if not access.reach.narrow(Job.objects.filter(cluster__in=subject.clusters)).exists():
                raise Http404
            access.subject = Subject(of_all=True)  # until `settle`
        elif isinstance(subject, Absent) or access.hides(subject):
            raise Http404
        else:
            access.subject = subject
        if match.route.startswith(API) and request.method in CHANGING:
            _require_to_change(request, match.route)
