"""The API shows and changes the program of a job that the Flink operator runs, which Kubernetes has."""

from __future__ import annotations

from monitoring.models import Job, RestartAttempt
from tests.dashboard.api.conftest import Caller
from tests.monitoring.discovery.played_kubernetes import FLINK
from tests.monitoring.discovery.played_operator import PlayedOperator


def test_the_api_shows_and_changes_the_program(admin_api: Caller, operated_job: Job, operated: PlayedOperator) -> None:
    address = f"/jobs/{operated_job.pk}/operator-program"
    shown = admin_api.get(address).json()
    assert (shown["resource"], shown["image"], shown["parallelism"]) == ("FlinkDeployment prod/orders", "orders:1", 2)
    assert admin_api.post(address, {"image": "a b"}).status_code == 422
    assert admin_api.post(address, {}).status_code == 422
    answer = admin_api.post(address, {"parallelism": 4, "program_args": ["--topic", "b"]})
    assert answer.status_code == 202, answer.content
    now = RestartAttempt.objects.get().launch["now"]
    assert (now["image"], now["parallelism"], now["program_args"]) == ("orders:1", 4, ["--topic", "b"])
    assert admin_api.post(address, {"parallelism": 8}).status_code == 409


def test_the_api_says_why_there_is_no_program(
    admin_api: Caller, api: Caller, operated_job: Job, operated: PlayedOperator
) -> None:
    address = f"/jobs/{operated_job.pk}/operator-program"
    assert api.post(address, {"image": "orders:2"}).status_code == 422
    operated.kubernetes.forbidden = {("get", FLINK)}
    assert admin_api.get(address).status_code == 503
    operated_job.cluster.found_resources.all().delete()
    assert admin_api.get(address).status_code == 409
