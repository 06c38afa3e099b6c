"""All versions of the jobs' launch records."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.jobs import Job
from monitoring.models.sealed_json import SealedLaunchField


class LaunchOrigin(models.TextChoices):
    FOUND = "found", _("reported by the engine")
    EDITED = "edited", _("edited")
    RESTART = "restart", _("with a restart")


class LaunchVersion(models.Model):
    """A version of a job's launch record. The newest has the highest number; `Job.launch` is the one in use.

    A return to an older record creates a new version, so that the numbers show the order of the changes.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="launch_versions")
    number = models.PositiveIntegerField()
    spec = SealedLaunchField()
    origin = models.CharField(max_length=10, choices=LaunchOrigin.choices)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        ordering = ("-number",)
        constraints = (models.UniqueConstraint(fields=("job", "number"), name="one_launch_version_per_number"),)

    def __str__(self) -> str:
        return f"{self.job} version {self.number}"
