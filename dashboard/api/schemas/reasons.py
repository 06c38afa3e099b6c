"""The schema of a reason, which the API returns in addition to the English text."""

from __future__ import annotations

from typing import Annotated, Any

from ninja import Schema
from pydantic import BeforeValidator, Field

from monitoring.reasons.reason import Reason


class ReasonOut(Schema):
    code: str = Field(description="Stays the same when the text is reworded.")
    args: dict[str, Any] = Field(
        description="The arguments of the text: strings, numbers, lists or reasons. Times are in ISO 8601, durations "
        "in seconds."
    )


def _as_json(value: Any) -> Any:
    return value.as_json() if isinstance(value, Reason) else value


# None for a row that was stored before reasons had codes.
ReasonJson = Annotated[ReasonOut | None, BeforeValidator(_as_json)]
