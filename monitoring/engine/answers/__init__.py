"""The answers of an engine as typed values, the same for all versions from Flink 1.15 to 2.x.

Times are aware datetimes, durations milliseconds, sizes bytes. None: the engine does not report it.
"""

from monitoring.engine.answers.checkpoints import (
    Checkpoints,
    CheckpointStats,
    Counts,
    OperatorSubtasks,
    Restored,
    SubtaskStats,
    TaskStats,
)
from monitoring.engine.answers.cluster import (
    DEFAULT_HISTORY,
    DEFAULT_KEPT_S,
    JarFile,
    ManagerConfig,
    Overview,
    WebConfig,
)
from monitoring.engine.answers.configuration import CheckpointConfig, JobConfig
from monitoring.engine.answers.exceptions import JobException
from monitoring.engine.answers.jobs import (
    TERMINAL_STATES,
    JobDetail,
    JobOverview,
    LaunchWait,
    OwnEnd,
    Position,
    SourceRows,
    Vertex,
)
from monitoring.engine.answers.logs import DriverLog, LogMatches, LogPart
from monitoring.engine.answers.savepoints import FoundCheckpoint, SavepointValidation

__all__ = [
    "DEFAULT_HISTORY",
    "DEFAULT_KEPT_S",
    "TERMINAL_STATES",
    "CheckpointConfig",
    "CheckpointStats",
    "Checkpoints",
    "Counts",
    "DriverLog",
    "FoundCheckpoint",
    "JarFile",
    "JobConfig",
    "JobDetail",
    "JobException",
    "JobOverview",
    "LaunchWait",
    "LogMatches",
    "LogPart",
    "ManagerConfig",
    "OperatorSubtasks",
    "Overview",
    "OwnEnd",
    "Position",
    "Restored",
    "SavepointValidation",
    "SourceRows",
    "SubtaskStats",
    "TaskStats",
    "Vertex",
    "WebConfig",
]
