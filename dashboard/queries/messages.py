"""Read the messages and channels that an account may see."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest

from dashboard.access.guard import Access, access_of, refusal
from dashboard.access.reach import Reach
from dashboard.access.roles import Role
from monitoring.models import Channel, Delivery, Incident, Notification


def visible_messages(reach: Reach) -> QuerySet[Delivery]:
    """Return the messages that an account may see.

    A message about several incidents needs the right to see all of them. A test message has no incident and needs the
    right to see everything.
    """
    found = Delivery.objects.all()
    if reach.is_unrestricted:
        return found
    notifications = Notification.objects.filter(delivery=OuterRef("pk"))
    visible = reach.narrow_either(Incident.objects.all()).values("pk")
    return found.filter(Exists(notifications)).exclude(Exists(notifications.exclude(event__incident__in=visible)))


def visible_channels(reach: Reach) -> QuerySet[Channel]:
    """Return all channels. For an account with grants, return only the channels of the messages that it may see."""
    if reach.is_unrestricted:
        return Channel.objects.all()
    return Channel.objects.filter(Exists(visible_messages(reach).filter(channel=OuterRef("pk"))))


def may_retry(access: Access, delivery: Delivery) -> bool:
    """Return whether the account may operate the jobs and clusters of all incidents in the message."""
    if access.may(Role.OPERATOR):
        return True
    notifications = list(delivery.notifications.values_list("event__incident__job", "event__incident__cluster"))
    return bool(notifications) and all(access.may_on(Role.OPERATOR, job, cluster) for job, cluster in notifications)


def require_to_retry(request: HttpRequest, delivery: Delivery) -> None:
    if not may_retry(access_of(request), delivery):
        raise PermissionDenied(refusal(access_of(request), Role.OPERATOR))
