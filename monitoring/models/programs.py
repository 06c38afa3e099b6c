"""Programs as they were uploaded, kept so that a cluster that lost one is given it again."""

from __future__ import annotations

from django.db import models

from monitoring.models.clusters import Cluster


class Program(models.Model):
    """Known by its content. The file itself lies in its parts."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    name = models.CharField(max_length=255)  # as the clusters are told it; a PySpark program's names its module
    size = models.BigIntegerField()
    uploaded_by = models.CharField(max_length=150)
    uploaded_at = models.DateTimeField()

    class Meta:
        ordering = ("-uploaded_at",)

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]})"


class ProgramPart(models.Model):
    program = models.ForeignKey(Program, on_delete=models.CASCADE, related_name="parts")
    number = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta:
        ordering = ("number",)
        constraints = (models.UniqueConstraint(fields=("program", "number"), name="one_part_per_number"),)

    def __str__(self) -> str:
        return f"{self.program}, part {self.number}"


class PlacedProgram(models.Model):
    """What a cluster knows under that id, or knew."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="placed_programs")
    jar_id = models.CharField(max_length=500)
    program = models.ForeignKey(Program, on_delete=models.CASCADE, related_name="placed")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "jar_id"), name="one_program_per_jar_id"),)

    def __str__(self) -> str:
        return f"{self.program} on {self.cluster}: {self.jar_id}"
