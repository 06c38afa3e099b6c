"""A table of what an engine can do by its version, for the relevant differences between Flink 1.15 and 2.x.

`seen` means tested with a running Flink 2.3. All other entries, and all about older versions, come from Flink's sources
(1.15.4 to 2.4-SNAPSHOT) without a test. The parsers of answers (answers/) do not use the version: fields that an older
engine lacks are None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

OLDEST, NEWEST_SEEN = (1, 15), (2, 3)
_NUMBERS = re.compile(r"(\d+)\.(\d+)")
WAYMARK = "waymark"
# The "version" of a directory of checkpoint locations: the files do not name Spark's.
WATCHED = "checkpoint locations"
# The "version" of a cluster with the agent: each program has its own version of Spark.
REPORTED = "reports of the agent"
# The "version" of a directory of event logs, which may be of many versions.
EVENT_LOGS = "event logs"


@dataclass(frozen=True)
class Capability:
    """A capability of Flink from version `since` to before `until`. `waymark`: Waymark's job manager has it, too."""

    what: str
    since: tuple[int, int] = OLDEST
    until: tuple[int, int] | None = None
    waymark: bool = True
    seen: bool = False
    missed: bool = False  # pages show that the engine lacks the feature


CAPABILITIES: Mapping[str, Capability] = {
    "job_status": Capability("a job's state alone (GET /jobs/:id/status)", (1, 16), seen=True),
    "savepoint_format": Capability("savepoints in a chosen format (formatType)"),
    "savepoint_format_told": Capability("a checkpoint's savepointFormat", (1, 17), seen=True),
    "client_trigger_id": Capability("triggers with an id of the client's (triggerId)", seen=True),
    "trigger_checkpoint": Capability("manual checkpoints (/jobs/:id/checkpoints)", (1, 17), seen=True, missed=True),
    "run_configuration": Capability(
        "configuration for a single start (flinkConfiguration)", (1, 17), seen=True, missed=True
    ),
    "unaligned_as_taken": Capability("UNALIGNED_CHECKPOINT says what happened, not what was set", (1, 18)),
    "failure_labels": Capability("labels of exceptions (failureLabels)", (1, 18), seen=True),
    "resource_requirements": Capability(
        "changing the parallelism of a running job (resource-requirements)", (1, 18), missed=True
    ),
    "exception_endpoint": Capability("where an exception happened as endpoint, not location", (1, 19), seen=True),
    "claim_mode": Capability("claim mode under the name claimMode (restoreMode before)", (1, 20)),
    "program_args_text": Capability("program arguments as one text (programArgs)", until=(2, 0), waymark=True),
    "root_exception": Capability("the newest exception apart (root-exception)", until=(2, 0), waymark=False, seen=True),
    "run_application": Capability("POST /jars/:id/run-application", (2, 3), waymark=False),
}


@dataclass(frozen=True)
class EngineVersion:
    """A version of Flink or of Waymark's job manager. `numbers` is None if `text` has no numbers."""

    text: str
    numbers: tuple[int, int] | None

    @classmethod
    def parse(cls, text: str) -> EngineVersion:
        found = _NUMBERS.search(text)
        return cls(text, (int(found[1]), int(found[2])) if found else None)

    @property
    def waymark(self) -> bool:
        return self.text.startswith(WAYMARK)

    @property
    def watched(self) -> bool:
        return self.text in (WATCHED, REPORTED, EVENT_LOGS)

    def can(self, capability: str) -> bool:
        """Return whether the engine has the capability. True for an unknown version: the engine may answer 404."""
        wanted = CAPABILITIES[capability]
        if self.watched:
            return False
        if self.waymark:
            return wanted.waymark
        if self.numbers is None:
            return True
        return self.numbers >= wanted.since and (wanted.until is None or self.numbers < wanted.until)

    def lacks(self) -> list[str]:
        """Return descriptions of the capabilities that the engine lacks and that people may expect."""
        if self.watched:
            return []
        return [each.what for name, each in CAPABILITIES.items() if each.missed and not self.can(name)]

    def remark(self) -> Reason | None:
        """Return a remark about an unreadable, too old or too new version, None for a supported one."""
        if self.waymark or self.watched:
            return None
        if self.numbers is None:
            return EngineReason.VERSION_UNREADABLE(version=self.text)
        oldest, newest = (f"{major}.{minor}" for major, minor in (OLDEST, NEWEST_SEEN))
        if self.numbers < OLDEST:
            return EngineReason.VERSION_TOO_OLD(version=self.text, oldest=oldest)
        if self.numbers > NEWEST_SEEN:
            return EngineReason.VERSION_TOO_NEW(version=self.text, newest=newest)
        return None
