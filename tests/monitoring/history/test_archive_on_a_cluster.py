"""With SPARK_MASTER_URL, the executors of a Spark cluster read the old rows and write the archive's files."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

from monitoring.models import ArchivedFile, ArchivedState, Checkpoint
from tests.checkpointing.spark.standalone_cluster import StandaloneCluster
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import everything, fill
from tests.monitoring.history.conftest import Pipeline
from tests.monitoring.history.test_archive import ROOT, database_url
from tests.monitoring.history.test_rollups_on_a_cluster import cluster, tasks_of

__all__ = ["cluster"]
pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


def test_executors_archive_the_rows_exactly(
    old: Rows, pipeline: Pipeline, archive: Path, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    fill(old, 60, timedelta(minutes=90))
    pipeline.run()
    before, rows = everything(), Checkpoint.objects.count()
    connection.close()  # so that the process can drop partitions
    environ = {
        **os.environ,
        "DATABASE_URL": database_url(),
        "WAYMARK_ARCHIVE": str(archive),
        "WAYMARK_VAR": str(tmp_path / "var"),
        "SPARK_MASTER_URL": cluster.master,
    }
    command = [sys.executable, "manage.py", "archive", "advance"]
    while ArchivedFile.objects.filter(state=ArchivedState.LIVE).count() < 3:  # a call has a minute
        process = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=400)
        assert process.returncode == 0, process.stderr
    assert everything() == before
    archived = ArchivedFile.objects.filter(state=ArchivedState.LIVE, kind="checkpoints")
    assert 0 < sum(file.rows for file in archived) == rows - Checkpoint.objects.count()
    assert sum(tasks_of(tmp_path / "spark")) > 0
