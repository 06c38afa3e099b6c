"""The database models. A status column changes only together with the row or field that says when and why."""

from monitoring.models.access import Account, ApiToken, Grant, GrantedRole, IdempotentAnswer, LogInFailure
from monitoring.models.archive import FINAL, ArchivedFile, ArchivedKind, ArchivedState, PartitionTouch
from monitoring.models.as_code import AppliedText, JobDefault
from monitoring.models.audit import AuditEntry
from monitoring.models.automation import AutomationPause, RestartDecision, Verdict
from monitoring.models.checkpoints import (
    Checkpoint,
    CheckpointGap,
    CheckpointStatus,
    CheckpointType,
    NewestCompleted,
    OperatorCheckpoint,
)
from monitoring.models.clusters import (
    REPORTED_DISCOVERIES,
    WATCHED_DISCOVERIES,
    Authentication,
    Cluster,
    Discovery,
    Engine,
    ZooKeeperAuthentication,
)
from monitoring.models.discoveries import DiscoverySource, FoundResource, SourceKind, WatchedKind
from monitoring.models.incidents import (
    INHIBITING_KINDS,
    Incident,
    IncidentEvent,
    IncidentEventKind,
    IncidentKind,
    IncidentState,
)
from monitoring.models.jobs import Job, RestoreFrom, Run, RunState, RunStateChange
from monitoring.models.launches import LaunchOrigin, LaunchVersion
from monitoring.models.location_copies import CopyState, LocationCopy
from monitoring.models.maintenance import MaintenanceWindow
from monitoring.models.notifications import (
    AttemptOutcome,
    Channel,
    ChannelKind,
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    Notification,
    NotificationReason,
    NotificationState,
)
from monitoring.models.objectives import Objective, ObjectiveBudget, ObjectiveDay
from monitoring.models.programs import PlacedProgram, Program, ProgramPart
from monitoring.models.recorded import (
    ChangeKind,
    ConfigurationChange,
    ConfigurationPart,
    CounterSample,
    JobConfiguration,
    RunException,
)
from monitoring.models.recovery import (
    AttemptState,
    RefusedStart,
    RestartAttempt,
    RestartStep,
    RestartTrigger,
    StepState,
)
from monitoring.models.reported import ReportedBatch, ReportedMinute, ReportedRun
from monitoring.models.rollups import CheckpointDeletion, OperatorRollup, Rollup, RollupProgress
from monitoring.models.rules import (
    AlertRule,
    FigureBaseline,
    HourlyBaseline,
    Outage,
    OutageKind,
    RulePhase,
    RuleScope,
    RuleState,
    Runbook,
    Severity,
)
from monitoring.models.saved_views import SavedView
from monitoring.models.savepoints import CheckedState, Savepoint, SavepointOrigin, SavepointState
from monitoring.models.selfwatch import Tick
from monitoring.models.state_reads import StateRead, StateReadKind, StateReadState
from monitoring.models.watched_queries import QuerySource, WatchedQuery

__all__ = [
    "FINAL",
    "INHIBITING_KINDS",
    "REPORTED_DISCOVERIES",
    "WATCHED_DISCOVERIES",
    "Account",
    "AlertRule",
    "ApiToken",
    "AppliedText",
    "ArchivedFile",
    "ArchivedKind",
    "ArchivedState",
    "AttemptOutcome",
    "AttemptState",
    "AuditEntry",
    "Authentication",
    "AutomationPause",
    "ChangeKind",
    "Channel",
    "ChannelKind",
    "CheckedState",
    "Checkpoint",
    "CheckpointDeletion",
    "CheckpointGap",
    "CheckpointStatus",
    "CheckpointType",
    "Cluster",
    "ConfigurationChange",
    "ConfigurationPart",
    "CopyState",
    "CounterSample",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryState",
    "Discovery",
    "DiscoverySource",
    "Engine",
    "FigureBaseline",
    "FoundResource",
    "Grant",
    "GrantedRole",
    "HourlyBaseline",
    "IdempotentAnswer",
    "Incident",
    "IncidentEvent",
    "IncidentEventKind",
    "IncidentKind",
    "IncidentState",
    "Job",
    "JobConfiguration",
    "JobDefault",
    "LaunchOrigin",
    "LaunchVersion",
    "LocationCopy",
    "LogInFailure",
    "MaintenanceWindow",
    "NewestCompleted",
    "Notification",
    "NotificationReason",
    "NotificationState",
    "Objective",
    "ObjectiveBudget",
    "ObjectiveDay",
    "OperatorCheckpoint",
    "OperatorRollup",
    "Outage",
    "OutageKind",
    "PartitionTouch",
    "PlacedProgram",
    "Program",
    "ProgramPart",
    "QuerySource",
    "RefusedStart",
    "ReportedBatch",
    "ReportedMinute",
    "ReportedRun",
    "RestartAttempt",
    "RestartDecision",
    "RestartStep",
    "RestartTrigger",
    "RestoreFrom",
    "Rollup",
    "RollupProgress",
    "RulePhase",
    "RuleScope",
    "RuleState",
    "Run",
    "RunException",
    "RunState",
    "RunStateChange",
    "Runbook",
    "SavedView",
    "Savepoint",
    "SavepointOrigin",
    "SavepointState",
    "Severity",
    "SourceKind",
    "StateRead",
    "StateReadKind",
    "StateReadState",
    "StepState",
    "Tick",
    "Verdict",
    "WatchedKind",
    "WatchedQuery",
    "ZooKeeperAuthentication",
]
