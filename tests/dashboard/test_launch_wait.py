"""The page of a job says why the job waits for its start."""

from __future__ import annotations

import pytest
from django.utils import translation

from checkpointing.jobs.launching.admission import Lacking
from checkpointing.jobs.python_environments.preparation import Step
from dashboard.launch_wait import sentence

GIB = 2**30
WAIT = {"asked": 2 * GIB, "free": GIB, "limit": 16 * GIB, "position": 3, "length": 7}


@pytest.mark.parametrize(
    ("lacking", "expected"),
    [
        ("memory", "The driver needs 2.00 GB of memory, and 1.00 GB of 16.0 GB is free."),
        ("machine", "drivers on the job manager's machine may use 16.0 GB together."),
        ("turn", "A job ahead in the queue is waiting"),
        ("recovery", "recovering jobs of a higher priority first."),
    ],
)
def test_each_reason_is_a_sentence_with_its_figures(lacking: str, expected: str) -> None:
    text = sentence({"for": lacking, **WAIT})

    assert expected in text
    assert text.endswith("Position in the queue: 3 of 7.")


@pytest.mark.parametrize("lacking", ["drivers", "starts"])
def test_counts_are_not_formatted_as_sizes(lacking: str) -> None:
    text = sentence({"for": lacking, **WAIT, "free": 0, "limit": 4})

    assert " 4" in text
    assert "GB" not in text


def test_every_reason_has_a_sentence_in_both_languages() -> None:
    for language in ("en", "zh-hans"):
        with translation.override(language):
            text = [sentence({"for": lacking.value, **WAIT}) for lacking in Lacking]
        assert len(set(text)) == len(Lacking)


def test_environment_preparation_shows_its_step_without_a_position() -> None:
    for language in ("en", "zh-hans"):
        with translation.override(language):
            output = {sentence({"for": "environment", "step": step.value}) for step in Step}
            assert len(output) == len(Step)
            unknown = sentence({"for": "environment", "step": "compiling"})
        assert all(text.startswith(unknown[:10]) for text in output) or language != "en"
    assert sentence({"for": "environment"}) == "The Python environment is being prepared."


def test_a_reason_of_a_newer_job_manager_leaves_the_position() -> None:
    assert sentence({"for": "weather", **WAIT}) == "Position in the queue: 3 of 7."
    assert sentence({"for": "weather"}) == ""
