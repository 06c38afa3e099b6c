from monitoring.recovery.found_launch import parallelism_of, settings_of

REPORTED = {
    "mode": "exactly_once",
    "interval": 2000,
    "timeout": 600000,
    "min_pause": 0,
    "max_concurrent": 1,
    "externalization": {"enabled": True, "delete_on_cancellation": False},
    "unaligned_checkpoints": True,
    "tolerable_failed_checkpoints": 3,
}


def test_checkpointing_is_stored_with_flinks_keys():
    assert settings_of(REPORTED) == {
        "execution.checkpointing.interval": "2000 ms",
        "execution.checkpointing.timeout": "600000 ms",
        "execution.checkpointing.max-concurrent-checkpoints": "1",
        "execution.checkpointing.tolerable-failed-checkpoints": "3",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }


def test_a_job_without_checkpoints_gets_none():
    assert settings_of({**REPORTED, "interval": None}) == {}
    assert settings_of({}) == {}


def test_checkpoints_that_are_not_retained_set_no_retention():
    assert "retention" not in str(settings_of({**REPORTED, "externalization": {"enabled": False}}))


def test_the_parallelism_of_the_job_is_that_of_most_operators():
    assert parallelism_of([{"parallelism": 1}, {"parallelism": 4}, {"parallelism": 4}]) == 4
    assert parallelism_of([]) is None
