"""Prepare the database before the other parts start.

This creates the tables, an administrator, the embedded cluster, and the channels that the environment names.

python -m dashboard.stack.setup
"""

from __future__ import annotations

import os
import secrets

import django
from django.conf import settings
from django.core.management import call_command

from dashboard.stack.environment import ADMIN_PASSWORD, secret_of
from dashboard.stack.record import write_private

ADMIN = "admin"


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    call_command("migrate", interactive=False, verbosity=1)
    ensure_administrator(secret_of(os.environ, ADMIN_PASSWORD))
    if settings.EMBEDDED_CLUSTER_URL:
        from monitoring.engine.registration import register_embedded

        # The port of the job manager may have changed since the last start.
        register_embedded(settings.EMBEDDED_CLUSTER_URL, settings.JOBMANAGER_TOKEN)
    from monitoring.notify.channels import ensure_configured_channels

    ensure_configured_channels(settings.ALERT_MAIL, settings.ALERT_WEBHOOK, settings.ALERT_WEBHOOK_SECRET)


def ensure_administrator(password: str) -> None:
    """Create the account `admin` with `password`, else with a random password that is stored in var/admin-password.

    If the account exists, set a given `password`. The file is deleted once its password is no longer valid.
    """
    from django.contrib.auth import get_user_model

    password_file = settings.VAR_DIR / "admin-password"
    users = get_user_model().objects
    admin = users.filter(username=ADMIN).first()
    if admin is None:
        chosen = password or secrets.token_urlsafe(12)
        users.create_superuser(ADMIN, password=chosen)
        if not password:
            write_private(password_file, chosen + "\n")
    elif password and not admin.check_password(password):
        admin.set_password(password)
        admin.save(update_fields=["password"])
    if password_file.exists() and not users.get(username=ADMIN).check_password(password_file.read_text().strip()):
        password_file.unlink()


if __name__ == "__main__":
    main()
