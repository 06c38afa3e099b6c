"""The overview and the API show usual values of the hour and the forecast, from roll-ups."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import Checkpoint
from tests.dashboard import builders as make
from tests.monitoring.history.conftest import Pipeline, dsn

pytestmark = pytest.mark.django_db(transaction=True)


def test_forecast_shows_when_a_slowing_job_reaches_its_timeout(operator: Client, now: datetime, tmp_path: Path) -> None:
    """Without roll-ups, no usual values and no forecast are shown."""
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now, age=timedelta(days=30))
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    Checkpoint.objects.bulk_create(
        Checkpoint(
            run=run,
            checkpoint_id=number,
            status="COMPLETED",
            triggered_at=midnight - timedelta(hours=6 * number),
            end_to_end_duration=30_000 - 200 * number,
            state_size=10**9 - 4 * 10**6 * number,
        )
        for number in range(1, 112)
    )
    address, api = reverse("job", args=[job.pk]), f"/api/v1/jobs/{job.pk}/diagnosis"
    assert operator.get(api).json()["forecast"] is None
    path = tmp_path / "dsn"
    path.write_text(dsn())
    Pipeline(path).run()
    body = operator.get(api).json()
    assert body["forecast"]["duration_per_day"] == pytest.approx(800, rel=0.25)
    assert body["forecast"]["state_per_day"] == pytest.approx(16 * 10**6, rel=0.25)
    assert {each["figure"] for each in body["usual"]} == {"duration", "state_size", "interval"}
    assert "timeout_foreseen" in [each["name"] for each in body["advices"]]
    page = operator.get(address, {"range": "30d"}).content.decode()
    for words in ("typical for this hour", "grows by", "Checkpoints will reach their timeout"):
        assert words in page
