"""The systemd unit in docs/deploy.md confines the service, and systemd knows all its settings."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def unit() -> str:
    [text] = re.findall(r"^```ini\n(.*?)^```", (ROOT / "docs" / "deploy.md").read_text(), re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_service_is_confined(unit: str) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]  # systemd's names have capitals
    parser.read_string(unit)
    service = parser["Service"]
    wanted = {"UMask": "0077", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "PrivateTmp": "yes"}
    assert wanted.items() <= dict(service).items()
    assert service["User"] != "root"
    assert f"WAYMARK_VAR=/var/lib/{service['StateDirectory']}" in service["Environment"].split(), "else it cannot write"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_knows_every_setting(unit: str, tmp_path: Path) -> None:
    (tmp_path / "waymark.service").write_text(unit.replace("/opt/waymark/.venv/bin/python", "/bin/true"))
    command = ["systemd-analyze", "verify", str(tmp_path / "waymark.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if "waymark" in line] == []
