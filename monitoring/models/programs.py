"""Copies of uploaded programs, so that a program that a cluster has lost can be uploaded again."""

from __future__ import annotations

from django.db import models

from monitoring.models.clusters import Cluster


class Program(models.Model):
    """A program, identified by its content, which is stored in its parts."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    name = models.CharField(max_length=255)  # the file name on clusters; for PySpark, it contains the module's name
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
    """The program that a cluster has, or had, under the ID `jar_id`."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="placed_programs")
    jar_id = models.CharField(max_length=500)
    program = models.ForeignKey(Program, on_delete=models.CASCADE, related_name="placed")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "jar_id"), name="one_program_per_jar_id"),)

    def __str__(self) -> str:
        return f"{self.program} on {self.cluster}: {self.jar_id}"
