"""Labels of models that pages translate by their value: named here so that the catalog has them."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

CHECKPOINT_STATUSES = (_("Pending"), _("Completed"), _("Failed"))
CHECKPOINT_TYPES = (_("checkpoint"), _("unaligned checkpoint"), _("savepoint"), _("savepoint on stop"))

PERIODIC_TASKS = (
    _("keep history pipeline"),
    _("poll clusters"),
    _("evaluate rules"),
    _("deliver notifications"),
    _("advance savepoints"),
    _("advance recovery"),
    _("answer state reads"),
    _("archive history"),
    _("ping dead man"),
)
# What Flink's versions and our job manager lack, as EngineVersion.lacks says it.
LACKING = (
    _("checkpoints by hand (/jobs/:id/checkpoints)"),
    _("settings with a launch (flinkConfiguration)"),
    _("another parallelism in flight (resource-requirements)"),
)

BADGES = (
    *(_("damaged"), _("done"), _("fails"), _("flapping"), _("found"), _("goes"), _("holding"), _("not active")),
    *(_("ticks"), _("stands by"), _("takes ticks"), _("kept running"), _("not running"), _("silent")),
    *(_("open"), _("breaker open"), _("refused"), _("stays"), _("Over"), _("Planned"), _("Running")),
)
