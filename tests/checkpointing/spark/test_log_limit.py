from __future__ import annotations

from pathlib import Path

from checkpointing.clock import ManualClock
from checkpointing.jobs.launching.log_limit import LogLimit

MEGABYTE = 1024 * 1024


def test_a_log_above_its_limit_is_rotated_and_keeps_its_last_megabyte(tmp_path: Path) -> None:
    log, clock = tmp_path / "driver.log", ManualClock()
    limit = LogLimit(log, clock, 3 * MEGABYTE)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 2 * MEGABYTE)
        limit.enforce()
        assert log.stat().st_size == 2 * MEGABYTE
        writer.write(b"b" * 2 * MEGABYTE)
        limit.enforce()
        assert log.stat().st_size == 4 * MEGABYTE, "it is not looked at all the time"

        clock.advance(10)
        limit.enforce()
        writer.write(b"c")

    assert log.read_bytes() == b"c"
    assert (tmp_path / "driver.log.1").read_bytes() == b"b" * MEGABYTE


def test_a_missing_log_is_ignored(tmp_path: Path) -> None:
    LogLimit(tmp_path / "driver.log", ManualClock()).enforce()
