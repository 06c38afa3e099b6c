"""The page upgrades, rescales, rolls back and clones a job: it creates the rows that the workers process."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from pytest_httpserver import HTTPServer

from monitoring.launches import Launched, remember
from monitoring.models import AuditEntry, Cluster, Job, LaunchOrigin, RestartAttempt, Run, RunState
from monitoring.programs import content_of, copy_of
from monitoring.recovery.going_back import undo_change
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

TYPED = {
    "kind": "waymark",
    "jar_id": "4c2f_flights.py",
    "entry_class": "flights.py:by_route",
    "program_args": "--input\r\n/data/flights",
    "configuration": "execution.checkpointing.interval: 10s\r\nspark.sql.shuffle.partitions: 4",
    "parallelism": "4",
    "now": "replace",
    "state": "stop",
}


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now)
    make.make_savepoint(run, now - timedelta(hours=1))
    remember([Launched(run, make.LAUNCH)], LaunchOrigin.FOUND, "", now)
    return job


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="pw-ada-1"))
    return client


def send(client: Client, job: Job, **typed: object) -> object:
    return client.post(reverse("job-launch", args=[job.pk]), TYPED | typed)


def test_the_page_shows_the_record_and_its_versions(viewer: Client, job: Job) -> None:
    page = viewer.get(reverse("job-launch", args=[job.pk])).content.decode()
    assert "4c2f_flights.py" in page
    assert ">current</span>" in page
    assert "Start the second job" not in page


def test_an_upgrade_continues_from_the_savepoint_on_stop(admin: Client, job: Job) -> None:
    response = send(admin, job, jar_id="77aa_flights.py")
    attempt = RestartAttempt.objects.get()
    assert response.status_code == 302
    assert (attempt.from_stop, attempt.restore_path, attempt.launch["jar_id"]) == (True, "", "77aa_flights.py")
    assert attempt.reason == (
        "ada asked to start it with another program, from the savepoint taken when the job stops."
    )
    job.refresh_from_db()
    assert job.launch["jar_id"] == "4c2f_flights.py"


def test_the_note_of_a_change_is_part_of_its_reason(admin: Client, job: Job) -> None:
    send(admin, job, jar_id="77aa_flights.py", note=" Version 2 of the routes. ")
    assert RestartAttempt.objects.get().reason == (
        "ada asked to start it with another program (Version 2 of the routes), "
        "from the savepoint taken when the job stops."
    )


def test_an_operator_can_rescale_but_not_change_the_program(operator: Client, job: Job) -> None:
    send(operator, job, parallelism="8", jar_id="evil.py", program_args="--rm", kind="command", command="/bin/sh")
    attempt = RestartAttempt.objects.get()
    assert attempt.launch == make.LAUNCH | {"parallelism": 8}
    assert attempt.reason.startswith("olga asked to rescale it from 4 to 8, from the savepoint")


def test_an_operator_can_return_to_an_earlier_version(operator: Client, job: Job, now: datetime) -> None:
    newer = make.LAUNCH | {"jar_id": "new.py"}
    assert job.current_run is not None
    remember([Launched(job.current_run, newer)], LaunchOrigin.FOUND, "", now)
    send(operator, job, version="1")
    assert RestartAttempt.objects.get().launch == make.LAUNCH


def test_a_clone_starts_from_the_selected_savepoint(admin: Client, job: Job) -> None:
    savepoint = job.savepoints.get()
    send(admin, job, now="clone", name="flights-copy", state=f"savepoint-{savepoint.pk}")
    attempt = RestartAttempt.objects.get()
    assert (attempt.job.name, attempt.restore_path, attempt.stop_first) == ("flights-copy", savepoint.path, False)


def test_a_new_program_is_uploaded_to_the_cluster(admin: Client, job: Job, engine: HTTPServer) -> None:
    engine.expect_request("/jars/upload", method="POST").respond_with_json(
        {"filename": "/up/9e_flights.py", "status": "success"}
    )
    send(admin, job, upload=SimpleUploadedFile("flights.py", b"print()"))
    assert RestartAttempt.objects.get().launch["jar_id"] == "9e_flights.py"


def test_a_refused_upload_is_reported_and_stops_nothing(admin: Client, job: Job, engine: HTTPServer) -> None:
    engine.expect_request("/jars/upload").respond_with_json({"errors": ["Only a .py, please."]}, status=400)
    response = send(admin, job, upload=SimpleUploadedFile("flights.zip", b"PK"))
    assert response.status_code == 422
    assert "Only a .py, please." in str(response.context["form"].errors["upload"])
    assert not RestartAttempt.objects.exists()


def test_saving_a_launch_record_does_not_restart_the_job(admin: Client, job: Job) -> None:
    send(admin, job, now="save", parallelism="2", note="cheaper")
    job.refresh_from_db()
    assert (job.launch["parallelism"], job.launch_versions.count()) == (2, 2)
    assert AuditEntry.objects.get(action="job.launch").reason == "cheaper"
    assert not RestartAttempt.objects.exists()


def test_a_job_without_a_launch_record_gets_a_command(admin: Client, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(launch=None)
    command = "/opt/flink/bin/flink\nrun\n-s\n{savepoint}\n-D$internal.pipeline.job-id={job_id}\njob.jar"
    send(admin, job, kind="command", command=command, parallelism="", now="save")
    job.refresh_from_db()
    assert job.launch == {"kind": "command", "command": command.split("\n")}


@pytest.mark.parametrize(
    ("typed", "field", "expected"),
    [
        ({"parallelism": "0"}, "parallelism", "greater than or equal to 1"),
        ({"jar_id": ""}, "jar_id", "A program is needed: the id of one on the cluster, or a new one."),
        ({"kind": "flink-jar"}, "kind", "flink-jar is not one of the available choices"),
        ({"configuration": "no colon"}, "configuration", "Line 1 is 'no colon'. Write it as key: value."),
        (
            {"configuration": "execution.checkpointing.intervall: 10s"},
            "configuration",
            "intervall: a PySpark job has no such key; the most similar key is execution.checkpointing.interval.",
        ),
        ({"kind": "command", "command": "/bin/x\n{savepoint}\n; rm"}, "command", "is shell syntax"),
        ({"kind": "command", "command": "/bin/x\n{nothing}"}, "command", "{nothing} does not exist"),
        ({"now": "clone", "name": "", "state": "stop"}, "name", "Enter a name for the second job."),
        ({"now": "clone", "name": "copy", "state": "stop"}, "state", "starts only from a savepoint"),
        ({"state": "savepoint-999"}, "state", "Select a valid choice"),
    ],
)
def test_an_invalid_value_is_reported_at_its_field_and_stops_nothing(
    admin: Client, job: Job, typed: dict[str, str], field: str, expected: str
) -> None:
    response = send(admin, job, **typed)
    assert response.status_code == 422
    assert expected in " ".join(response.context["form"].errors[field])
    assert not RestartAttempt.objects.exists()
    assert Job.objects.count() == 1


COMMAND = {"kind": "command", "command": "/opt/flink/bin/flink\r\nrun\r\n-s\r\n{savepoint}", "now": "save"}
SCALED = COMMAND["command"] + "\r\n-p\r\n{parallelism}"


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ({}, {}),
        ({"limit_s": "300"}, {"limit_s": 300}),
        ({"command": SCALED}, {"parallelism": 4}),
        ({"command": SCALED, "parallelism": "9"}, {"parallelism": 9}),
    ],
)
def test_the_time_limit_and_parallelism_of_a_command_are_stored(
    admin: Client, job: Job, typed: dict[str, str], kept: dict[str, int]
) -> None:
    assert send(admin, job, **COMMAND | typed).status_code == 302
    job.refresh_from_db()
    assert {name: value for name, value in job.launch.items() if name not in ("kind", "command")} == kept


@pytest.mark.parametrize(
    ("typed", "field", "expected"),
    [
        ({"limit_s": "4"}, "limit_s", "greater than or equal to 5"),
        ({"limit_s": "1801"}, "limit_s", "less than or equal to 1800"),
        ({"parallelism": "9"}, "parallelism", "use {parallelism} in an argument of the command"),
        ({"command": SCALED, "parallelism": ""}, "parallelism", "the command uses {parallelism}"),
        ({"command": "/bin/sh\r\n-c\r\nflink run {job_name} {savepoint}"}, "command", "which sh could read as code"),
    ],
)
def test_an_invalid_command_is_reported_at_its_field(
    admin: Client, job: Job, typed: dict[str, str], field: str, expected: str
) -> None:
    Job.objects.update(name="flights; rm -rf /")
    response = send(admin, job, **COMMAND | typed)
    assert response.status_code == 422
    assert expected in " ".join(response.context["form"].errors[field])


def test_the_form_of_a_flink_job_offers_a_jar_or_a_command(admin: Client, job: Job) -> None:
    Job.objects.update(launch=None)
    Cluster.objects.update(engine="flink")
    page = admin.get(reverse("job-launch", args=[job.pk])).content.decode()
    assert "a jar on the Flink cluster" in page
    assert "A .jar file, at most" in page
    assert "The main class of the jar." in page
    for of_pyspark in ("job manager</option>", "module:function"):
        assert of_pyspark not in page

    errors = send(admin, job, kind="waymark").context["form"].errors
    assert "waymark is not one of the available choices" in " ".join(errors["kind"])
    errors = send(admin, job, kind="flink-jar", upload=SimpleUploadedFile("flights.py", b"x")).context["form"].errors
    assert errors["upload"] == ["flights.py is not a .jar file."]
    assert not RestartAttempt.objects.exists()


def test_the_form_preselects_saving_without_a_restart(admin: Client, job: Job) -> None:
    version = job.launch_versions.get()
    for launch in (None, job.launch):
        Job.objects.filter(pk=job.pk).update(launch=launch)
        for query in ({}, {"version": version.number}):
            page = admin.get(reverse("job-launch", args=[job.pk]), query)
            chosen = re.findall(r'name="now" value="(\w+)"[^>]* checked', page.content.decode())
            assert chosen == ["save"]
            assert page.context["form"]["now"].value() == "save"


def test_a_launch_record_of_another_kind_keeps_its_kind_in_the_form(admin: Client, job: Job) -> None:
    Cluster.objects.update(engine="flink")
    page = admin.get(reverse("job-launch", args=[job.pk])).content.decode()
    assert '<option value="waymark" selected>' in page


def test_no_savepoint_on_stop_is_offered_for_a_stopped_job(admin: Client, job: Job) -> None:
    assert job.current_run is not None
    job.current_run.state = RunState.FAILED
    job.current_run.save()
    page = admin.get(reverse("job-launch", args=[job.pk])).content.decode()
    assert "taken when the job stops" not in page
    assert "Start the job with this launch record" in page
    assert "Stop the job" not in page


@pytest.fixture
def engine(job: Job, httpserver: HTTPServer) -> HTTPServer:
    job.cluster.rest_url = httpserver.url_for("/").rstrip("/")
    job.cluster.save()
    return httpserver


def test_an_uploaded_program_is_copied_and_the_page_shows_it(admin: Client, job: Job, engine: HTTPServer) -> None:
    engine.expect_request("/jars/upload", method="POST").respond_with_json(
        {"filename": "/up/9e_flights.py", "status": "success"}
    )
    page = admin.get(reverse("job-launch", args=[job.pk])).content.decode()
    assert "Waymark has no copy of this program" in page
    send(admin, job, upload=SimpleUploadedFile("flights.py", b"print()"), now="save")
    copy = copy_of(job.cluster, "9e_flights.py")
    assert copy is not None
    assert (content_of(copy), copy.name, copy.uploaded_by) == (b"print()", "flights.py", "ada")
    page = admin.get(reverse("job-launch", args=[job.pk])).content.decode()
    assert "flights.py, 7 B, uploaded by ada" in page


def test_the_form_of_a_discovered_job_has_the_values_of_the_engine(admin: Client, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(launch=None)
    job.launch_versions.all().delete()
    result = {"interval": 2000, "mode": "exactly_once", "timeout": 600_000, "min_pause": 0, "max_concurrent": 1}
    vertices = [{"id": "1", "name": "count", "parallelism": 3}]
    Run.objects.filter(pk=job.current_run_id).update(vertices=vertices, checkpoint_config=result)
    response = admin.get(reverse("job-launch", args=[job.pk]))
    form = response.context["form"]
    assert form["parallelism"].value() == 3
    assert "execution.checkpointing.interval: 2000 ms" in form["configuration"].value()
    assert "This job has no launch record yet." in response.content.decode()
    page = admin.get(reverse("job-configuration", args=[job.pk])).content.decode()
    assert "Add a launch record" in page


def test_a_value_with_several_lines_is_stored_unchanged(admin: Client, job: Job) -> None:
    """Requirements, keys and certificates have several lines."""
    requirements = "# what it needs\npandas==2.2.3 \\\n    --hash=sha256:abc\n\nnumpy"
    typed = requirements.replace("\n", "\r\n  ")
    configuration = f"spark.a: 1\r\nwaymark.python.requirements: {typed}\r\nspark.b: 2"
    send(admin, job, configuration=configuration, parallelism="", now="save")
    job.refresh_from_db()
    assert job.launch is not None
    assert job.launch["configuration"] == {"spark.a": "1", "waymark.python.requirements": requirements, "spark.b": "2"}

    form = admin.get(reverse("job-launch", args=[job.pk])).context["form"]
    send(admin, job, configuration=form["configuration"].value(), parallelism="", now="save")
    job.refresh_from_db()
    assert job.launch["configuration"]["waymark.python.requirements"] == requirements


def test_a_failed_change_links_the_restart_that_undoes_it(admin: Client, job: Job) -> None:
    send(admin, job, jar_id="77aa_flights.py", goes_back="on")
    failed = RestartAttempt.objects.get()
    assert failed.goes_back
    page = reverse("restart-progress", args=[failed.pk])
    assert "its previous launch record" not in admin.get(page).content.decode()
    RestartAttempt.objects.update(
        state="failed", error="It does not fit.", launches=1, restore_path="file:/sp/1", ended_at=failed.created_at
    )
    failed.refresh_from_db()
    back = undo_change(failed, failed.created_at)
    assert back is not None
    shown = admin.get(page).content.decode()
    assert f'href="{reverse("restart-progress", args=[back.pk])}"' in shown
    assert "starts the job with its previous launch record, from the same snapshot" in shown
