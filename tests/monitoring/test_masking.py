"""Secrets are shown as placeholders. Placeholders that a person did not change are replaced by the stored secrets."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointing.masking import MARK
from monitoring.masking import shown, shown_launch, unmasked_launch

JDBC = "jdbc:postgresql://db/f?user=u&password=one&ssl=true"
STORED: dict[str, Any] = {
    "kind": "waymark",
    "configuration": {"s3.secret-key": "two", "sink.url": JDBC, "parallelism.default": "4"},
    "program_args": ["--password", "three", "--url", JDBC, "--rows", "7"],
}


def test_a_masked_record_that_is_saved_without_a_change_keeps_its_secrets() -> None:
    masked = shown_launch(STORED)
    assert not [each for each in ("one", "two", "three") if each in str(masked)]
    assert unmasked_launch(masked, STORED) == STORED


def test_text_next_to_a_mask_may_be_changed() -> None:
    masked = shown_launch(STORED)
    masked["configuration"]["sink.url"] = masked["configuration"]["sink.url"].replace("//db/", "//other/")
    masked["program_args"][3] = masked["program_args"][3].replace("//db/", "//other/")
    whole = unmasked_launch(masked, STORED)
    assert whole["configuration"]["sink.url"] == whole["program_args"][3] == JDBC.replace("//db/", "//other/")


def test_a_mask_is_replaced_only_by_the_secret_of_its_key() -> None:
    masked = shown_launch(STORED)
    moved = masked["configuration"] | {"greeting": masked["configuration"]["s3.secret-key"]}
    with pytest.raises(ValueError, match="greeting has a hidden value that is not stored"):
        unmasked_launch(masked | {"configuration": moved}, STORED)
    with pytest.raises(ValueError, match="program_args has a hidden value"):
        unmasked_launch({"program_args": masked["program_args"]}, {})


def test_masking_twice_is_masking_once() -> None:
    once = shown({"a.password": "x", "url": JDBC, "header": "Authorization: Bearer abcdef12", "p": "redis://:pw@h/0"})
    assert shown(once) == once
    assert all(MARK.search(value) for value in once.values())
    assert shown({"url": JDBC}) != shown({"url": JDBC.replace("one", "other")})
