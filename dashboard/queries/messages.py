"""Read the messages and channels that an account may see."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.exceptions import PermissionDenied
from django.db.models import Case, Count, Exists, OuterRef, QuerySet, When
from django.http import HttpRequest
from django.utils.translation import get_language

from dashboard.access.guard import Access, access_of, refusal
from dashboard.access.reach import Reach
from dashboard.access.roles import Role
from monitoring.models import Channel, Delivery, Incident, Notification, Severity
from monitoring.notify.message import Message, item_of, message_of
from monitoring.notify.wording.texts import subject_of
from monitoring.reasons.reason import SOURCE


def visible_messages(reach: Reach) -> QuerySet[Delivery]:
    """Return the messages that an account may see.

    A message about several incidents needs the right to see all of them. A test message or a summary needs the right
    to see everything.
    """
    found = Delivery.objects.all()
    if reach.is_unrestricted:
        return found
    notifications = Notification.objects.filter(delivery=OuterRef("pk"))
    visible = reach.narrow_either(Incident.objects.all()).values("pk")
    return found.filter(Exists(notifications)).exclude(Exists(notifications.exclude(event__incident__in=visible)))


def subjects(deliveries: Iterable[Delivery]) -> dict[int, str]:
    """Return the subjects by primary key, in the language of the page if it is not English.

    The rows store an English subject, which is the only one of a test message.
    """
    language, found = get_language() or SOURCE, {each.pk: each for each in deliveries}
    texts = {pk: each.subject for pk, each in found.items()}
    if language == SOURCE:
        return texts
    notifications = Notification.objects.filter(delivery__in=list(found))
    totals = dict(notifications.order_by().values_list("delivery_id").annotate(Count("pk")))
    is_critical = Case(When(event__incident__severity=Severity.CRITICAL, then=0), default=1)
    leads = notifications.order_by("delivery_id", is_critical, "id").distinct("delivery_id")
    for lead in leads.select_related("event__incident__job", "event__incident__cluster"):
        delivery = found[lead.delivery_id or 0]
        message = Message(delivery.key, (item_of(lead),), totals[delivery.pk], delivery.is_digest)
        texts[delivery.pk] = subject_of(message, language)
    for pk, each in found.items():
        if each.summary is not None:
            texts[pk] = subject_of(message_of(each), language)
    return texts


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
