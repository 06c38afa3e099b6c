"""What has to be in the database before the rest starts: tables, an administrator, the embedded cluster.

python -m dashboard.stack.setup
"""

from __future__ import annotations

import os
import secrets

import django
from django.conf import settings
from django.core.management import call_command

from dashboard.stack.record import write_private

ADMIN = "admin"
CLUSTER = "waymark"


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    call_command("migrate", interactive=False, verbosity=1)
    ensure_administrator(os.environ.get("WAYMARK_ADMIN_PASSWORD", ""))
    register_embedded_cluster(settings.EMBEDDED_CLUSTER_URL)


def ensure_administrator(password: str) -> None:
    """The user `admin`: with `password` where one is given, else with a random one, kept in var/admin-password.

    That file goes once it no longer opens the door: somebody has chosen a password of their own.
    """
    from django.contrib.auth import get_user_model

    kept = settings.VAR_DIR / "admin-password"
    users = get_user_model().objects
    admin = users.filter(username=ADMIN).first()
    if admin is None:
        chosen = password or secrets.token_urlsafe(12)
        users.create_superuser(ADMIN, password=chosen)
        if not password:
            write_private(kept, chosen + "\n")
    elif password and not admin.check_password(password):
        admin.set_password(password)
        admin.save(update_fields=["password"])
    if kept.exists() and not users.get(username=ADMIN).check_password(kept.read_text().strip()):
        kept.unlink()


def register_embedded_cluster(url: str) -> None:
    """Let the poller know the job manager that runs beside it; its port may have changed since the last start."""
    if not url:
        return
    from django.utils import timezone

    from monitoring.models import Cluster

    Cluster.objects.update_or_create(
        name=CLUSTER, defaults={"rest_url": url}, create_defaults={"rest_url": url, "next_poll_at": timezone.now()}
    )


if __name__ == "__main__":
    main()
