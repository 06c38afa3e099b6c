"""The specification of a new driver process: one JSON file, the driver's only argument."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.job_environment import JobEnvironment
from checkpointing.model.messages import from_plain, to_plain
from checkpointing.model.zookeeper_access import ZooKeeperAccessFiles


@dataclass(frozen=True)
class RestoreSpec:
    """The snapshot to restore: an absolute directory with `_metadata`, which the job manager has verified.

    `may_write_again`: a person requested this restore, or the job's setting `execution.sinks.after-restore` allows a
    restore after which sinks get rows a second time.
    `restored_since`: queries that have returned to a batch before the snapshot since it was taken, with that batch.
    `other_jobs`: the jobs that have not ended, if the snapshot belongs to another job. One of them may still write to
    the output that the snapshot names.
    """

    directory: str
    checkpoint_id: int
    is_savepoint: bool
    allow_non_restored_state: bool
    may_write_again: bool = True
    restored_since: dict[str, int] = field(default_factory=dict)
    other_jobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocalRecoverySpec:
    """A start from the files that `attempt` left in its `work_directory`. The job manager has checked them.

    `newest_checkpoint` is the location of the job's newest checkpoint. Files that it contains need not be read again.
    `of_any_boot`: the files are on shared storage, and another machine may have written them.
    """

    work_directory: str
    attempt: int
    newest_checkpoint: str | None = None
    of_any_boot: bool = False


@dataclass(frozen=True)
class HighAvailabilitySpec:
    """How the driver finds the leader and claims its job. `hosts` as in ZOOKEEPER_HOSTS."""

    hosts: str
    root: str
    session_timeout_s: float
    access: ZooKeeperAccessFiles | None = None  # None: clients are anonymous and use no TLS


def is_script(entry_class: str) -> bool:
    """Return whether `entry_class` names a whole script, `job.py` or `package.job`, and no function of it."""
    return ":" not in entry_class


@dataclass(frozen=True)
class DriverSpec:
    """One attempt of one job. `work_directory` is fresh and belongs to this attempt alone.

    `timeline` identifies the job's output since the last restore of an older state; sinks use it as a fence. At most
    one of `restore` and `local` is given. `secret` is random: the job manager recognises this attempt's driver by it.
    `fetches_program`: the driver fetches the program from the job manager and stores it at `program_path`.
    The secrets of `environment` reach the driver only through its process's environment. In JSON they are hidden.
    """

    job_id: str
    job_name: str
    attempt: int
    program_path: str
    entry_class: str
    program_args: tuple[str, ...]
    parallelism: int | None
    configuration: dict[str, str]
    work_directory: str
    timeline: str
    job_manager_address: str
    lease_s: float
    restore: RestoreSpec | None = None
    local: LocalRecoverySpec | None = None
    high_availability: HighAvailabilitySpec | None = None
    token_file: str | None = None
    environment: JobEnvironment = field(default_factory=JobEnvironment)
    secret: str = field(default="", repr=False)
    batch_numbers: BatchNumbers | None = None
    fetches_program: bool = False

    def to_json(self) -> dict[str, object]:
        return dict(to_plain(replace(self, environment=self.environment.hidden())))

    @classmethod
    def from_json(cls, data: dict[str, object]) -> DriverSpec:
        return from_plain(cls, data)


@dataclass(frozen=True)
class SpareSpec:
    """The specification of a spare driver: everything that its JVM needs at the start. `directory` belongs to it."""

    directory: str
    host: str
    parallelism: int | None
    configuration: dict[str, str]

    def to_json(self) -> dict[str, object]:
        return dict(to_plain(self))

    @classmethod
    def from_json(cls, data: dict[str, object]) -> SpareSpec:
        return from_plain(cls, data)
