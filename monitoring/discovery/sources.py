"""People's actions on sources: add, change, switch off and on, remove. The audit log records each, without secrets."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import transaction

from monitoring import audit
from monitoring.models import DiscoverySource
from monitoring.models.secret_field import SecretField

SETTINGS = (
    *("name", "kind", "in_cluster", "kubeconfig", "namespaces", "label_selector"),
    *("addresses", "authentication", "token", "username", "password", "ca_bundle"),
    *("queues", "users", "application_tags", "address_pattern", "may_change_resources", "enabled"),
)
_LONG = frozenset({"ca_bundle"})
# After a change of these, the resources are listed again.
_READ_AGAIN = frozenset(SETTINGS) - {"name", "may_change_resources", "enabled"}


def describe(source: DiscoverySource) -> Mapping[str, object]:
    """Return the settings for an audit entry. A secret appears only as "set" or ""."""
    return {name: _shown(source, name) for name in SETTINGS}


@transaction.atomic
def save(source: DiscoverySource, actor: str) -> tuple[str, ...]:
    """Store a new or changed source, and return the names of the changed settings. It is read at the next tick."""
    if source.pk is None:
        source.save()
        now = {name: value for name, value in describe(source).items() if value}
        audit.record(actor, "discovery.add", target(source), now=now)
        return SETTINGS
    stored = DiscoverySource.objects.select_for_update().get(pk=source.pk)
    changed = tuple(name for name in SETTINGS if getattr(stored, name) != getattr(source, name))
    if not changed:
        return ()
    # The worker that reads the source now loses its claim, because it has the former settings.
    source.claimed_by, source.claimed_until, source.next_look_at = "", None, None
    source.save(update_fields=[*changed, "claimed_by", "claimed_until", "next_look_at"])
    if _READ_AGAIN & set(changed):
        source.watched_kinds.all().delete()
        source.found_resources.update(version="")
    before, now = describe(stored), describe(source)
    details = {name: now[name] if before[name] != now[name] else "changed" for name in changed}
    audit.record(
        actor, "discovery.change", target(stored), before={name: before[name] for name in changed}, now=details
    )
    return changed


@transaction.atomic
def remove(source: DiscoverySource, actor: str) -> None:
    """Delete the source. Its clusters stay, and nobody changes them any more."""
    audit.record(actor, "discovery.remove", target(source), before=dict(describe(source)))
    source.delete()


def target(source: DiscoverySource) -> str:
    return f"discovery {source.name}"


def _shown(source: DiscoverySource, name: str) -> object:
    value = getattr(source, name)
    if isinstance(DiscoverySource._meta.get_field(name), SecretField):
        return "set" if value else ""
    return "set" if name in _LONG and value else value
