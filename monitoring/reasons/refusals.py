"""What `checkpointing` refuses, as reasons. Forms have its exceptions, and a job manager sends their codes."""

from __future__ import annotations

from typing import Any

from checkpointing.model.refusals import Refusal, Refused
from monitoring.reasons.reason import Reason, ReasonCode, from_json

_enum: Any = ReasonCode  # the functional API, which mypy knows only of the standard enums
RefusalReason = _enum("RefusalReason", [(each.name, each.value) for each in Refusal], module=__name__)


def reason_of(error: Exception) -> Reason | str:
    """Return the reason of a refusal, or the text of any other error."""
    return (from_json(error.as_json()) if isinstance(error, Refused) else None) or str(error)


def refusal_in(answer: object) -> Reason | None:
    """Return the reason that a job manager sent; None if it is not one of these with texts and numbers."""
    reason = from_json(answer)
    if reason is None or not isinstance(reason.code, RefusalReason):
        return None
    return reason if all(isinstance(value, str | int) for value in reason.args.values()) else None
