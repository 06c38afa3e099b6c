"""Render why a job waits for the start of its driver, in the language of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from checkpointing.jobs.launching.admission import Lacking
from checkpointing.jobs.python_environments.preparation import Step
from monitoring.units import bytes_text


def sentence(wait: Mapping[str, Any]) -> str:
    """Return Run.launch_wait as a sentence. An unknown reason is omitted."""
    if wait["for"] == Lacking.ENVIRONMENT.value:
        return _preparing(wait.get("step"))
    if "position" not in wait:
        return ""
    position = _("Position in the queue: %(position)s of %(length)s.") % {
        "position": wait["position"],
        "length": wait["length"],
    }
    return f"{_reason(wait)} {position}".lstrip()


def _preparing(step: str | None) -> str:
    match step:
        case Step.READING.value:
            return _("The Python environment is being prepared: the job manager reads its definition.")
        case Step.WAITING.value:
            return _("The Python environment is being prepared for another job that needs the same one.")
        case Step.INSTALLING.value:
            return _("The Python environment is being prepared: pip installs the requirements.")
        case Step.UNPACKING.value:
            return _("The Python environment is being prepared: the job manager unpacks the archive.")
        case Step.CHECKING.value:
            return _("The Python environment is being prepared: the job manager checks that a driver can run in it.")
        case _:
            return _("The Python environment is being prepared.")


def _reason(wait: Mapping[str, Any]) -> str:
    match wait["for"]:
        case Lacking.MEMORY.value:
            text = _("The driver needs %(asked)s of memory, and %(free)s of %(limit)s is free.")
            return text % {name: bytes_text(wait[name]) for name in ("asked", "free", "limit")}
        case Lacking.MACHINE.value:
            text = _(
                "The driver needs %(asked)s of memory, but all drivers on the job manager's machine may use %(limit)s "
                "together. Run the job on a larger machine, or request less memory for the driver."
            )
            return text % {name: bytes_text(wait[name]) for name in ("asked", "limit")}
        case Lacking.DRIVERS.value:
            return _("The limit of %(limit)s drivers on the job manager's machine is reached.") % wait
        case Lacking.STARTS.value:
            return _("Other drivers are starting; at most %(limit)s start at a time.") % wait
        case Lacking.TURN.value:
            return _("A job ahead in the queue is waiting for memory or for another driver to end.")
        case Lacking.RECOVERY.value:
            return _("The job manager is recovering jobs of a higher priority first.")
        case _:
            return ""
