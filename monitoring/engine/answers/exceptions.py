"""The exceptions in an engine's history of a job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.engine.causes import human, root_cause
from monitoring.engine.fields import Fields


@dataclass(frozen=True)
class JobException:
    """An exception. `message` is the innermost cause in one line, `headline` the exception's own message.

    `stacktrace` is cut after 20,000 characters. `host` is the task manager's address, "" for the whole job.
    """

    name: str
    message: str
    stacktrace: str
    at: datetime
    task: str
    host: str = ""
    headline: str = ""

    @classmethod
    def parse(cls, fields: Fields) -> JobException:
        stacktrace = fields.optional_text("stacktrace")
        name = fields.optional_text("exceptionName")
        return cls(
            name=name,
            message=(root_cause(stacktrace) or human(name)).removeprefix(f"{name}: "),
            stacktrace=stacktrace[:20_000],
            at=fields.moment("timestamp"),
            task=fields.optional_text("taskName"),
            # Older versions of Flink have only "location".
            host=fields.optional_text("endpoint") or fields.optional_text("location"),
            headline=human(stacktrace),
        )

    @classmethod
    def parse_with_concurrent(cls, fields: Fields) -> list[JobException]:
        """Return the exception and its concurrent exceptions of other tasks."""
        below = fields.children("concurrentExceptions") if fields.raw.get("concurrentExceptions") else []
        return [cls.parse(fields), *(cls.parse(each) for each in below)]

    def as_row(self) -> dict[str, str]:
        """Return the exception as Run.exceptions stores it."""
        return {
            "name": self.name,
            "message": self.message,
            "stacktrace": self.stacktrace,
            "at": self.at.isoformat(),
            "task": self.task,
        }
