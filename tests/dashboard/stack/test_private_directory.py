"""Other accounts of the machine cannot read anything below the var directory."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import psycopg
import pytest

from dashboard.stack.environment import ADMIN_PASSWORD, InvalidEnvironment, create_var, secret_of
from dashboard.stack.output import Output
from dashboard.stack.postgres import PostgresServer, server_user
from dashboard.stack.process import running
from dashboard.stack.start import _report_password
from tests.other_account import NOBODY, can_open, does, needs_root

PASSWORD = "the-administrators-own"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@needs_root
def test_a_directory_of_an_earlier_version_is_closed_to_other_accounts(session_directory: Path) -> None:
    var = session_directory / "earlier"
    (var / "log").mkdir(parents=True)
    (var / "log" / "waymark.log").write_text(PASSWORD)
    for path in (var, var / "log", var / "log" / "waymark.log"):
        path.chmod(0o711 if path == var else 0o755)
    assert can_open(var.rglob("*")) == [str(path) for path in var.rglob("*")]

    create_var(var)

    assert can_open(var.rglob("*")) == []


def test_a_new_directory_is_closed_to_others_despite_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        create_var(tmp_path / "new" / "var")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "var").stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("directory", ["/", "/var/lib", "/tmp"])
def test_a_directory_that_every_account_needs_is_refused(directory: str) -> None:
    mode = Path(directory).stat().st_mode
    with pytest.raises(InvalidEnvironment, match=f"WAYMARK_VAR: '{directory}' is not allowed"):
        create_var(Path(directory))
    assert Path(directory).stat().st_mode == mode


def texts_of_password(var: Path, stream: io.StringIO) -> tuple[str, str]:
    """Return the texts of the stream and of the log file."""
    output = Output(var / "log", stream)
    _report_password(output, var)
    output.close()
    return stream.getvalue(), (var / "log" / "waymark.log").read_text()


def test_the_password_is_printed_to_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "admin-password").write_text(f"{PASSWORD}\n")
    shown, kept = texts_of_password(tmp_path, Terminal())
    assert PASSWORD in shown
    assert PASSWORD not in kept
    assert str(tmp_path / "admin-password") in kept


def test_journal_names_the_password_file(tmp_path: Path) -> None:
    (tmp_path / "admin-password").write_text(f"{PASSWORD}\n")
    shown, _ = texts_of_password(tmp_path, io.StringIO())
    assert PASSWORD not in shown
    assert str(tmp_path / "admin-password") in shown


def test_callers_password_can_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chosen").write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("WAYMARK_ADMIN_PASSWORD_FILE", str(tmp_path / "chosen"))
    assert secret_of(os.environ, ADMIN_PASSWORD) == PASSWORD
    shown, _ = texts_of_password(tmp_path, Terminal())
    assert "with the password in WAYMARK_ADMIN_PASSWORD" in shown
    assert PASSWORD not in shown


@pytest.mark.server
@needs_root
def test_postgresql_of_root_has_its_own_account_and_keeps_older_data(
    session_directory: Path,
) -> None:
    home, log = session_directory / "nobodys", session_directory / "nobodys.log"
    server = PostgresServer(home)
    with running(server, log=log), psycopg.connect(server.dsn()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    for path in (home, *home.rglob("*")):
        shutil.chown(path, NOBODY, NOBODY)
    home.chmod(0o700)

    with running(PostgresServer(home), log=log):
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("SELECT value FROM kept").fetchone() == (7,)
        assert can_open(home.rglob("*"), NOBODY) == []
        assert "Permission denied" in does(lambda: psycopg.connect(server.dsn()), NOBODY)
        assert {path.lstat().st_uid for path in home.rglob("*")} == {server_user()}
