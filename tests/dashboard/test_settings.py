"""Invalid settings end a command with one line that names them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "EMAIL_URL")}
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ | variables, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["EMAIL_URL", "WAYMARK_CA_BUNDLE", "WAYMARK_ARCHIVE"])
def test_invalid_setting_is_named(tmp_path: Path, name: str) -> None:
    done = manage("status", WAYMARK_VAR=str(tmp_path), **{name: "nonsense"})

    assert (done.returncode, name in done.stderr, "Traceback" in done.stderr) == (1, True, False)


def test_all_values_of_the_wrong_type_or_range_are_named_at_once(tmp_path: Path) -> None:
    names = [
        *("DATABASE_URL", "WAYMARK_DEBUG", "WAYMARK_MESSAGES_KEPT", "WAYMARK_HISTORY_PARTITION"),
        *("WAYMARK_HISTORY_KEPT", "WAYMARK_ARCHIVE_KEPT", "WAYMARK_HOURS_KEPT"),
    ]

    done = manage("status", WAYMARK_VAR=str(tmp_path), **dict.fromkeys(names, "nonsense"))

    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert [name for name in names if f"'{name}'" not in done.stderr] == []


@pytest.mark.parametrize("wrong", ["/", "flink/savepoints", "s3://key:secret@bucket/flink", "/var/flink,/"])
def test_invalid_state_locations_are_named(tmp_path: Path, wrong: str) -> None:
    done = manage("status", WAYMARK_VAR=str(tmp_path), WAYMARK_STATE_ROOTS=wrong)

    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert f"WAYMARK_STATE_ROOTS: {wrong.rpartition(',')[2]!r} is not allowed" in done.stderr


def test_addresses_with_passwords_may_come_from_files(tmp_path: Path) -> None:
    for name, url in (("database", "postgresql://u:p@db.example/flights"), ("mail", "smtp://u:p@mail.example:25")):
        (tmp_path / name).write_text(f"{url}\n")
    code = "from django.conf import settings as s; print(s.DATABASES['default']['HOST'], s.EMAIL_HOST, s.MAILBOX_DIR)"

    done = manage(
        *("shell", "--no-imports", "-c", code),
        WAYMARK_VAR=str(tmp_path),
        DATABASE_URL_FILE=str(tmp_path / "database"),
        EMAIL_URL_FILE=str(tmp_path / "mail"),
    )

    assert done.stdout.split() == ["db.example", "mail.example", "None"]


@pytest.mark.parametrize(
    ("public_url", "behind_proxy", "answers"),
    [
        ("https://w.example", "true", "301 https://w.example/login/ 200"),
        # Without a trusted proxy, Waymark does not know whether a request came through TLS.
        pytest.param("https://w.example", "false", "200 None 200", marks=pytest.mark.nightly),
        pytest.param("http://w.example", "true", "200 None 200", marks=pytest.mark.nightly),
    ],
)
def test_requests_that_a_proxy_received_without_tls_are_redirected(
    tmp_path: Path, public_url: str, behind_proxy: str, answers: str
) -> None:
    code = """
from django.test import Client
client = Client(headers={"Host": "w.example"})
plain, probe = client.get("/login/"), client.get("/healthz")
print(plain.status_code, plain.headers.get("Location"), probe.status_code)
"""
    done = manage(
        *("shell", "--no-imports", "-c", code),
        WAYMARK_VAR=str(tmp_path),
        WAYMARK_ALLOWED_HOSTS="w.example",
        WAYMARK_PUBLIC_URL=public_url,
        WAYMARK_BEHIND_TLS_PROXY=behind_proxy,
    )

    assert done.stdout.strip() == answers, done.stderr


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    done = manage("status", WAYMARK_VAR=str(tmp_path), DATABASE_URL_FILE=str(tmp_path / "gone"))

    assert (done.returncode, "DATABASE_URL_FILE" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


@pytest.mark.parametrize("command", ["up", "doctor"])
def test_var_that_is_not_a_directory_is_reported(tmp_path: Path, command: str) -> None:
    var = tmp_path / "file"
    var.touch()

    done = manage(command, WAYMARK_VAR=str(var))

    output = done.stdout + done.stderr
    assert (done.returncode, str(var) in output, "directory" in output, "Traceback" in output) == (1, True, True, False)
