"""Enforce permissions on each request. Objects that the reader may not see return 404, as if they did not exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from dashboard.access.reach import NO_REACH, Reach, reach_of
from dashboard.access.roles import Role
from dashboard.access.subjects import (
    ADMIN_ROUTES,
    API,
    NO_SUBJECT,
    OWN_ROUTES,
    REPORT_ROUTES,
    Absent,
    Archived,
    Subject,
    subject_of,
)
from monitoring.models import ApiToken, Job


@dataclass
class Access:
    """The permissions of a request.

    `reach` has the roles of the account, `subject` the job or cluster of the URL, and `most` the highest role that the
    request's token allows.
    """

    reach: Reach = NO_REACH
    subject: Subject = NO_SUBJECT
    token: ApiToken | None = None

    @property
    def most(self) -> Role:
        return Role.VIEWER if self.token and not self.token.may_write else Role.ADMIN

    def role_on(self, subject: Subject) -> Role | None:
        role = self.reach.role_on(subject.job_id, subject.cluster_id)
        return None if role is None else min(role, self.most)

    @property
    def role(self) -> Role | None:
        """Return the reader's role on the job or cluster of the URL."""
        return self.role_on(self.subject)

    def hides(self, subject: Subject) -> bool:
        """Return whether the job or cluster must stay hidden from the reader."""
        if self.reach.is_unrestricted:
            return False
        return subject.is_global or (subject != NO_SUBJECT and self.role_on(subject) is None)

    def may(self, role: Role) -> bool:
        return self.role is not None and self.role >= role

    def may_on(self, role: Role, job_id: int | None, cluster_id: int | None) -> bool:
        """Return whether the reader has the role on a job or cluster, for example on that of a row in a list."""
        found = self.role_on(Subject(job_id, cluster_id))
        return found is not None and found >= role

    def may_on_any(self, role: Role) -> bool:
        """Return whether the reader has the role on at least one object, so that a list shows its actions."""
        roles = [self.reach.global_role, *self.reach.clusters.values(), *self.reach.jobs.values()]
        return max((min(found, self.most) for found in roles if found), default=Role.VIEWER) >= role


class _RequestWithAccess(Protocol):
    waymark_access: Access


def access_of(request: HttpRequest) -> Access:
    """Return the permissions of a request. They are read from the database once for each request."""
    found = getattr(request, "waymark_access", None)
    if found is None:
        found = Access(reach_of(request.user))
        set_access(request, found)
    return found


def set_access(request: HttpRequest, access: Access) -> None:
    with_access: _RequestWithAccess = request  # type: ignore[assignment]
    with_access.waymark_access = access


def reach_at(request: HttpRequest) -> Reach:
    return access_of(request).reach


def require(request: HttpRequest, role: Role, why: str = "") -> None:
    """Raise PermissionDenied if the reader's role on the job or cluster of the URL is lower than `role`."""
    if not access_of(request).may(role):
        raise PermissionDenied(why or refusal(access_of(request), role))


def require_on(request: HttpRequest, role: Role, job_id: int | None, cluster_id: int | None) -> None:
    """Check the reader's role on a job or cluster that a form or a request body names.

    Raises:
        Http404: the reader may not see it.
        PermissionDenied: the reader's role is lower than `role`.
    """
    found = access_of(request).role_on(Subject(job_id, cluster_id))
    if found is None:
        raise Http404
    if found < role:
        raise PermissionDenied(refusal(access_of(request), role))


def require_on_any(request: HttpRequest, role: Role) -> None:
    """Raise PermissionDenied if the reader has the role on no object. The form then checks the chosen objects."""
    access = access_of(request)
    if not access.may_on_any(role):
        raise PermissionDenied(refusal(access, role))


def set_job(request: HttpRequest, job: Job) -> None:
    """Set the job of the row in the URL. Raise Http404 if the reader may not see this job."""
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
    """Return the name for the audit log and for rows: the user name, and the token if the request has one."""
    token = access_of(request).token
    name = request.user.get_username()
    return f"{name} (token {token.name})"[:150] if token else name


def _require_to_change(request: HttpRequest, route: str) -> None:
    """Check that the account may change the object in an API route, before the body is read.

    Operations check the objects in their body with `require_on`.
    """
    access = access_of(request)
    if route.removeprefix(API).startswith(REPORT_ROUTES):
        return
    if route.removeprefix(API).startswith(OWN_ROUTES):
        if access.most < Role.OPERATOR:
            raise PermissionDenied(refusal(access, Role.OPERATOR))
        return
    if access.reach.is_unrestricted or access.subject != NO_SUBJECT or access.most < Role.OPERATOR:
        require(request, Role.ADMIN if route.removeprefix(API).startswith(ADMIN_ROUTES) else Role.OPERATOR)


def permission_context(request: HttpRequest) -> dict[str, object]:
    """Return the permissions that templates use.

    `may_act` and `may_administer` concern the object of the page. Lists of jobs use `may_act_somewhere`, and `access`
    with the filter `acts_on` for each row. `may_see_channels` allows the pages of channels and receivers' responses.
    """
    access = access_of(request) if hasattr(request, "user") else Access()
    return {
        "may_act": access.may(Role.OPERATOR),
        "may_administer": access.may(Role.ADMIN),
        "may_act_somewhere": access.may_on_any(Role.OPERATOR),
        "may_see_channels": access.reach.is_unrestricted,
        "access": access,
    }


Answer = Callable[[HttpRequest], HttpResponse]
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class guard:  # noqa: N801 - named in MIDDLEWARE like functions
    """Middleware that checks permissions. It must run after the authentication middleware."""

    def __init__(self, get_response: Answer) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Raise Http404 if a view returned an archived row without calling `set_job`."""
        response = self._get_response(request)
        access = getattr(request, "waymark_access", None)
        if access is not None and access.hides(access.subject):
            raise Http404
        return response

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: dict[str, Any]) -> None:
        """Raise Http404 if the reader may not see the object of the URL, or if it does not exist."""
        match = request.resolver_match
        if match is None or not request.user.is_authenticated:
            return
        subject = subject_of(match.route, kwargs)
        access = access_of(request)
        if isinstance(subject, Archived):
            if not access.reach.narrow(Job.objects.filter(cluster__in=subject.clusters)).exists():
                raise Http404
            access.subject = Subject(is_global=True)  # until `set_job`
        elif isinstance(subject, Absent) or access.hides(subject):
            raise Http404
        else:
            access.subject = subject
        if match.route.startswith(API) and request.method in CHANGING:
            _require_to_change(request, match.route)
