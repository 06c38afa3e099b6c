"""Texts that pages translate by their stored value. They are listed here so that the message catalog includes them."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

CHECKPOINT_STATUSES = (_("Pending"), _("Completed"), _("Failed"))
CHECKPOINT_TYPES = (_("checkpoint"), _("unaligned checkpoint"), _("savepoint"), _("savepoint on stop"))

# Features that some versions of Flink, or Waymark's job manager, do not have. EngineVersion.lacks returns these texts.
LACKING = (
    _("manual checkpoints (/jobs/:id/checkpoints)"),
    _("configuration for a single start (flinkConfiguration)"),
    _("changing the parallelism of a running job (resource-requirements)"),
)

BADGES = (
    *(
        _("damaged"),
        _("done"),
        _("fails"),
        _("flapping"),
        _("reachable"),
        _("unreachable"),
        _("not polled yet"),
        _("delete"),
        _("missing"),
        _("pending"),
    ),
    *(_("leader"), _("standby"), _("running"), _("active"), _("not running"), _("no heartbeat")),
    *(_("open"), _("breaker open"), _("refused"), _("keep"), _("Over"), _("Planned"), _("Running")),
)

# Labels in the comparison of two checkpoints or runs that are not names of measures.
COMPARED = (_("Failure rate"), _("maximum"), _("Metrics"), _("Whole checkpoint"))

# Keys of the evidence of incidents.
EVIDENCE = (
    _("attempt"),
    _("cause"),
    _("lost"),
    _("checkpoint id"),
    _("checkpoint ids"),
    _("completed at"),
    _("count"),
    _("counted"),
    _("days"),
    _("derived"),
    _("ended at"),
    _("first seen at"),
    _("flapping"),
    _("growth"),
    _("incident"),
    _("jobs"),
    _("last checkpoint id"),
    _("last completed at"),
    _("last row"),
    _("lead s"),
    _("least ms"),
    _("limit ms"),
    _("limit s"),
    _("missed"),
    _("note"),
    _("objective percent"),
    _("p95"),
    _("resolved by"),
    _("restarts"),
    _("rows"),
    _("rule"),
    _("run"),
    _("run started at"),
    _("savepoint"),
    _("savepoints"),
    _("since"),
    _("source keeps s"),
    _("state"),
    _("threshold"),
    _("threshold percent"),
    _("threshold s"),
    _("until"),
    _("value"),
    _("value percent"),
    _("weeks"),
    _("why"),
    _("window s"),
    _("within s"),
    _("state size"),
    _("end to end duration"),
    _("alignment max"),
    _("start delay max"),
)
# Facts on which a decision about a failed job is based: fields of monitoring.recovery.detection.JobFacts.
FACTS = (
    _("name"),
    _("run state"),
    _("died at"),
    _("due at"),
    _("problem"),
    _("death seen at"),
    _("final read done"),
    _("cluster reachable"),
    _("auto restart"),
    _("paused"),
    _("launch known"),
    _("restart on lost"),
    _("breaker opened at"),
    _("breaker reason"),
    _("max restarts per hour"),
    _("max restarts per day"),
    _("automatic restarts"),
    _("of the day"),
    _("open attempt"),
    _("awaited run"),
    _("deaths nearby"),
    _("restore refused"),
)
