"""Labels of models that pages translate by their value: named here so that the catalog has them."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

CHECKPOINT_STATUSES = (_("Pending"), _("Completed"), _("Failed"))
CHECKPOINT_TYPES = (_("checkpoint"), _("unaligned checkpoint"), _("savepoint"), _("savepoint on stop"))
