"""Is what a driver leaves on storage that other machines see as it does?

The job's configuration says so, or the kind of file system does: NFS sends a file to its server when it is closed, and
Spark renames a file only once it is closed. So the loss of the machine that wrote it takes nothing away.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from checkpointing.jobs.launching.temporary import filesystem_of
from checkpointing.model.configuration import InvalidConfiguration

FROM_SHARED = "execution.state-recovery.from-shared"

_WRITE_ON_CLOSE = ("nfs", "nfs4")


def declared_shared(configuration: Mapping[str, str]) -> bool | None:
    """Return what the job's configuration says, None where it is silent; InvalidConfiguration."""
    value = configuration.get(FROM_SHARED, "").strip()
    if value.lower() not in ("true", "false", ""):
        raise InvalidConfiguration(FROM_SHARED, value, "true or false")
    return value.lower() == "true" if value else None


def is_shared(declared: bool | None, directory: Path) -> bool:
    """Blocking: where nothing is declared, the mounts of this machine decide."""
    return filesystem_of(directory) in _WRITE_ON_CLOSE if declared is None else declared
