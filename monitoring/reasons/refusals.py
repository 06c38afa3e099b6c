"""The refusals of `checkpointing` as reasons. They arrive as exceptions, or as codes in a job manager's answer."""

from __future__ import annotations

from typing import Any

from checkpointing.model.refusals import Refusal, Refused
from monitoring.reasons.reason import Reason, ReasonCode, from_json

_enum: Any = ReasonCode  # the functional API of enums, which mypy supports only for the standard enums
RefusalReason = _enum("RefusalReason", [(each.name, each.value) for each in Refusal], module=__name__)


def reason_of(error: Exception) -> Reason | str:
    """Return the reason of a refusal, or the text of any other error."""
    return (from_json(error.as_json()) if isinstance(error, Refused) else None) or str(error)


def refusal_in(answer: object) -> Reason | None:
    """Return the reason that a job manager sent; None if its code is not a refusal or an argument is invalid."""
    reason = from_json(answer)
    if reason is None or not isinstance(reason.code, RefusalReason):
        return None
    return reason if all(isinstance(value, str | int) for value in reason.args.values()) else None
