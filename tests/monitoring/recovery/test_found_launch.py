from monitoring.recovery.found_launch import parallelism_of, settings_of

TOLD = {
    "mode": "exactly_once",
    "interval": 2000,
    "timeout": 600000,
    "min_pause": 0,
    "max_concurrent": 1,
    "externalization": {"enabled": True, "delete_on_cancellation": False},
    "unaligned_checkpoints": True,
    "tolerable_failed_checkpoints": 3,
}


def test_checkpointing_is_told_in_flinks_keys():
    assert settings_of(TOLD) == {
        "execution.checkpointing.interval": "2000 ms",
        "execution.checkpointing.timeout": "600000 ms",
        "execution.checkpointing.max-concurrent-checkpoints": "1",
        "execution.checkpointing.tolerable-failed-checkpoints": "3",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }


def test_a_job_without_checkpoints_gets_none():
    assert settings_of({**TOLD, "interval": None}) == {}
    assert settings_of({}) == {}


def test_what_is_not_kept_is_not_asked_to_be():
    assert "retention" not in str(settings_of({**TOLD, "externalization": {"enabled": False}}))


def test_most_operators_say_what_the_jobs_parallelism_is():
    assert parallelism_of([{"parallelism": 1}, {"parallelism": 4}, {"parallelism": 4}]) == 4
    assert parallelism_of([]) is None
