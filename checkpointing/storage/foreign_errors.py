"""Translates errors of operating systems and of fsspec's drivers into a few storage errors that people can act on."""

from __future__ import annotations

import contextlib
import errno
import ftplib
from collections.abc import Iterator

from checkpointing.storage.errors import AccessDenied, StorageError, StorageFull, StorageUnreachable

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FTP_FULL = ("452", "552")
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ESTALE, errno.ENOTCONN)
# fsspec imports drivers only when they are needed, so their errors are recognised by name.
_DENIED_NAMES = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError",
                           "ClientAuthenticationError", "RefreshError", "AuthenticationException",
                           "TokenRetrievalError", "ProfileNotFound"})  # fmt: skip
_UNREACHABLE_NAMES = frozenset({"EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionError",
                                "ConnectionClosedError", "ClientConnectorError", "ClientConnectionError",
                                "ServiceRequestError", "SSHException", "TransportError"})  # fmt: skip


@contextlib.contextmanager
def mapped_errors(location: str) -> Iterator[None]:
    """Keep FileNotFoundError and FileExistsError in the block, and turn all other errors into a StorageError.

    A driver may report "missing" although it could not ask the server. Then another error is raised, because files that
    look missing may be removed, or left out of a recovery, forever.
    """
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        real = _hidden_cause(error)
        if real is None:
            raise
        raise as_storage_error(location, real) from error
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise
    except Exception as error:
        raise as_storage_error(location, error) from error


def as_storage_error(location: str, error: BaseException) -> StorageError:
    kind = _kind(error)
    text = str(error) or type(error).__name__
    match kind:
        case "full":
            return StorageFull(f"{location}: the storage is full ({text})")
        case "denied":
            return AccessDenied(f"{location}: the storage refuses access ({text})")
        case "unreachable":
            return StorageUnreachable(f"{location}: the storage cannot be reached ({text})")
        case _:
            return StorageError(f"{location}: {text}")


def _hidden_cause(error: FileNotFoundError) -> BaseException | None:
    """Return the other error that the driver turned into "missing", or None if the file really is missing."""
    cause = _cause_of(error)
    while cause is not None:
        if _kind(cause) in ("unreachable", "denied") and not _is_ftp_missing(cause):
            return cause
        cause = _cause_of(cause)
    return None


def _cause_of(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_ftp_missing(error: BaseException) -> bool:
    """Return whether FTP reports a missing file. Its code 550 also means a forbidden one."""
    return isinstance(error, ftplib.Error) and str(error).startswith(("550", "450"))


def _kind(error: BaseException) -> str:
    names = {cls.__name__ for cls in type(error).__mro__}
    number = getattr(error, "errno", None)
    text = str(error)
    if number in _FULL or "QuotaExceeded" in text or (isinstance(error, ftplib.Error) and text.startswith(_FTP_FULL)):
        return "full"
    if isinstance(error, PermissionError) or number in _DENIED or names & _DENIED_NAMES:
        return "denied"
    if isinstance(error, ftplib.error_perm) and text.startswith(("530", "532", "550", "553")):
        return "denied"
    if isinstance(error, ConnectionError | TimeoutError | EOFError | ftplib.error_temp | ftplib.error_proto):
        return "unreachable"
    is_name_unknown = "gaierror" in names
    return "unreachable" if is_name_unknown or number in _UNREACHABLE or names & _UNREACHABLE_NAMES else "other"
