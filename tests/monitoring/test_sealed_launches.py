"""Secrets of launch records are encrypted in the database, plain in Python, and encrypted again with a new key."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core import serializers
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from monitoring.launches import remember_edit
from monitoring.models import Cluster, Job, LaunchVersion, RestartAttempt, RestartTrigger
from monitoring.models.sealed_json import SEALED, sealed
from monitoring.recovery.launching import BadLaunch, check_launch
from monitoring.rekeying import rekey

PLAIN = "S3cr3t-Value"
LAUNCH: dict[str, Any] = {
    "kind": "waymark",
    "jar_id": "4c2f_flights.py",
    "entry_class": "flights.py:by_route",
    "program_args": ["--password", PLAIN, "--url", f"jdbc:postgresql://db/f?user=u&password={PLAIN}&ssl=true"],
    "parallelism": 4,
    "configuration": {
        "spark.hadoop.fs.s3a.secret.key": PLAIN,
        "waymark.secret.SIGNING_FILE": PLAIN,
        "spark.sql.shuffle.partitions": "4",
        "pem": f"-----BEGIN PRIVATE KEY-----{PLAIN}-----END PRIVATE KEY-----",
        "conn": f"AccountName=a;AccountKey={PLAIN}==;EndpointSuffix=x",
    },
}
SECRETS = 6


@pytest.fixture
def job(db: None) -> Job:
    cluster = Cluster.objects.create(name="c", rest_url="http://127.0.0.1:1")
    job = Job.objects.create(cluster=cluster, name="flights")
    remember_edit(job, LAUNCH, "olga", timezone.now())
    now = timezone.now()
    RestartAttempt.objects.create(
        job=job, epoch=1, trigger=RestartTrigger.MANUAL, reason="r", launch=LAUNCH, created_at=now, deadline_at=now
    )
    return job


def in_the_tables() -> list[str]:
    tables = (("job", "launch"), ("launchversion", "spec"), ("restartattempt", "launch"))
    found = []
    with connection.cursor() as cursor:
        for table, column in tables:
            cursor.execute(f"SELECT {column}::text FROM monitoring_{table} WHERE {column} IS NOT NULL")
            found += [row[0] for row in cursor.fetchall()]
    return found


def test_no_table_contains_a_plain_secret_of_a_launch_and_python_reads_it(job: Job) -> None:
    stored = in_the_tables()
    assert len(stored) == 3
    for text in stored:
        assert PLAIN not in text
        assert len(SEALED.findall(text)) == SECRETS
        assert "jdbc:postgresql://db/f?user=u&password=" in text  # all other text stays readable
    assert Job.objects.get().launch == LAUNCH
    assert LaunchVersion.objects.get().spec == LAUNCH
    assert RestartAttempt.objects.get().launch == LAUNCH
    assert list(Job.objects.values_list("launch", flat=True)) == [LAUNCH]
    assert Job.objects.filter(launch__kind="waymark").exists()


def test_every_way_of_writing_seals(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(launch=LAUNCH)
    assert PLAIN not in str(in_the_tables())
    Job.objects.bulk_update([job], ["launch"])
    assert PLAIN not in str(in_the_tables())
    job.save()
    assert PLAIN not in str(in_the_tables())
    assert Job.objects.get().launch == LAUNCH
    assert PLAIN not in serializers.serialize("json", Job.objects.all())


def test_the_same_launch_is_not_a_new_version(job: Job) -> None:
    version = remember_edit(Job.objects.get(), LAUNCH, "olga", timezone.now())
    assert (version.number, LaunchVersion.objects.count()) == (1, 1)


def test_a_secret_that_no_key_decrypts_is_kept_and_never_used_for_a_start(job: Job, settings: Settings) -> None:
    before = in_the_tables()
    settings.SECRET_KEY = "another one"
    found = Job.objects.get()
    assert found.launch is not None
    assert found.launch["configuration"]["spark.sql.shuffle.partitions"] == "4"
    with pytest.raises(BadLaunch, match="contains a secret that none of the configured keys can decrypt"):
        check_launch(found.launch)
    found.save()
    LaunchVersion.objects.get().save()
    RestartAttempt.objects.get().save()
    assert in_the_tables() == before
    with pytest.raises(CommandError, match="job flights: launch: The stored secret cannot be decrypted"):
        call_command("secrets", "check", stdout=StringIO())


def test_rekeying_includes_launch_records(job: Job, settings: Settings) -> None:
    settings.WAYMARK_SECRET_KEYS = [Fernet.generate_key().decode()]
    settings.SECRET_KEY_FALLBACKS = []
    assert rekey().sealed == 3
    settings.SECRET_KEY = "another one"
    assert Job.objects.get().launch == LaunchVersion.objects.get().spec == RestartAttempt.objects.get().launch == LAUNCH
    check_launch(Job.objects.get().launch)


def test_without_a_key_a_launch_is_remembered_all_the_same(db: None, settings: Settings) -> None:
    settings.SECRET_KEY_IS_SECRET = False
    assert sealed(LAUNCH) == LAUNCH
