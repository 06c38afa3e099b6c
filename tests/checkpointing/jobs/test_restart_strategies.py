"""Restart strategies, with the cases of Flink's tests (conformance list K)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointing.jobs.restart import (
    ExponentialDelay,
    ExponentialDelaySettings,
    FailureRate,
    FixedDelay,
    NoRestart,
    restart_strategy,
)
from checkpointing.model.configuration import InvalidConfiguration

PERIODIC = {"execution.checkpointing.interval": "10 s"}


def steady() -> float:
    return 0.0


def exponential(random: Callable[[], float] = steady, **settings: float) -> ExponentialDelay:
    return ExponentialDelay(ExponentialDelaySettings(**{"jitter": 0.0, **settings}), random)  # type: ignore[arg-type]


def backoffs(strategy: ExponentialDelay, rounds: int) -> list[float]:
    """Return the back-offs of failures, each of which follows right after the restart for the previous failure."""
    now, found = 0.0, []
    for _ in range(rounds):
        assert strategy.notify_failure(now)
        found.append(strategy.backoff_s())
        now += strategy.backoff_s() + 0.001
    return found


def test_conformance_k01_fixed_delay_restarts_exactly_n_times() -> None:
    strategy = FixedDelay(attempts=3, delay_s=1.0)

    allowed = []
    for now in range(4):
        strategy.notify_failure(now)
        allowed.append((strategy.can_restart(now), strategy.can_restart(now)))

    assert allowed == [(True, True)] * 3 + [(False, False)]
    assert strategy.backoff_s() == 1.0


def test_conformance_k03_failures_spaced_wider_than_the_rate_never_stop() -> None:
    strategy = FailureRate(max_failures=3, interval_s=3.0, delay_s=0.0)

    for number in range(100):
        strategy.notify_failure(number * 1.1)
        assert strategy.can_restart(number * 1.1)


def test_conformance_k04_one_failure_more_than_the_rate_stops() -> None:
    strategy = FailureRate(max_failures=3, interval_s=60.0, delay_s=0.0)

    allowed = []
    for now in range(4):
        strategy.notify_failure(now)
        allowed.append(strategy.can_restart(now))

    assert allowed == [True, True, True, False]


def test_conformance_k05_the_failure_rates_delay_is_constant() -> None:
    assert FailureRate(max_failures=1, interval_s=1.0, delay_s=0.25).backoff_s() == 0.25


def test_conformance_k07_there_is_no_backoff_before_the_first_failure() -> None:
    with pytest.raises(RuntimeError, match="before the first failure"):
        exponential().backoff_s()


def test_conformance_k08_the_first_backoff_is_the_initial_one() -> None:
    assert backoffs(exponential(initial_s=42.0, max_s=100.0), 1) == [42.0]


@given(st.floats(-1, 1), st.floats(0, 1))
def test_conformance_k09_no_backoff_exceeds_the_limit(random: float, jitter: float) -> None:
    strategy = exponential(lambda: random, initial_s=1.0, max_s=6.0, multiplier=2.0, jitter=jitter)

    assert all(1.0 <= backoff <= 6.0 for backoff in backoffs(strategy, 50))


def test_conformance_k11_the_backoff_grows_by_its_multiplier() -> None:
    found = backoffs(exponential(initial_s=4.0, max_s=1000.0, multiplier=2.3), 3)

    assert found == pytest.approx([4.0, 9.2, 21.16])


@pytest.mark.parametrize(("random", "expected"), [(-1.0, [2.0, 3.0, 6.0, 7.0]), (1.0, [2.5, 5.0, 7.0, 7.0])])
def test_conformance_k12_jitter_is_applied_before_the_limit(random: float, expected: list[float]) -> None:
    strategy = exponential(lambda: random, initial_s=2.0, max_s=7.0, multiplier=2.0, jitter=0.25)

    assert backoffs(strategy, 4) == expected


def test_conformance_k13_full_jitter_stays_between_the_initial_and_the_largest_backoff() -> None:
    lows = backoffs(exponential(lambda: -1.0, initial_s=1.0, max_s=7.0, multiplier=2.0, jitter=1.0), 3)
    highs = backoffs(exponential(lambda: 1.0, initial_s=1.0, max_s=7.0, multiplier=2.0, jitter=1.0), 3)

    assert lows == [1.0, 1.0, 1.0]
    assert highs == [2.0, 4.0, 7.0]


def test_conformance_k15_failures_before_the_restart_belong_to_the_same_attempt() -> None:
    strategy = exponential(initial_s=10.0, max_s=100.0, attempts=1)

    assert strategy.notify_failure(0.0)
    assert not strategy.notify_failure(3.0)
    assert not strategy.notify_failure(10.0)
    assert strategy.can_restart(10.0)
    assert strategy.notify_failure(10.1)
    assert not strategy.can_restart(10.1)


def test_conformance_k16_merging_is_still_right_after_ten_resets() -> None:
    strategy = exponential(initial_s=1.0, max_s=100.0, multiplier=2.0, reset_threshold_s=50.0)

    for round_ in range(10):
        start = round_ * 1000.0
        assert strategy.notify_failure(start)
        assert strategy.backoff_s() == 1.0
        assert not strategy.notify_failure(start + 0.5)
        assert strategy.notify_failure(start + 2.0)
        assert strategy.backoff_s() == 2.0


def test_ten_thousand_failures_do_not_overflow() -> None:
    assert backoffs(exponential(initial_s=1.0, max_s=60.0, multiplier=10.0), 10_000)[-1] == 60.0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("none", NoRestart), ("off", NoRestart), ("disable", NoRestart),
        ("fixed-delay", FixedDelay), ("FixedDelay", FixedDelay),
        ("failure-rate", FailureRate), ("exponential-delay", ExponentialDelay),
    ],
)  # fmt: skip
def test_conformance_k17_to_k20_the_jobs_configuration_chooses(name: str, kind: type) -> None:
    assert isinstance(restart_strategy({"restart-strategy.type": name} | PERIODIC, steady), kind)
    assert isinstance(restart_strategy({"restart-strategy": name}, steady), kind)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("restart-strategy.type", "sometimes"),
        ("restart-strategy.fixed-delay.attempts", "-1"),
        ("restart-strategy.fixed-delay.delay", "soon"),
        ("restart-strategy.failure-rate.max-failures-per-interval", "0"),
        ("restart-strategy.exponential-delay.jitter-factor", "1.5"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "0.5"),
        ("restart-strategy.exponential-delay.max-backoff", "1 ms"),
    ],
)
def test_conformance_k21_a_wrong_value_names_its_key(key: str, value: str) -> None:
    strategy = key.split(".")[1]
    kind = {} if strategy == "type" else {"restart-strategy.type": strategy}

    with pytest.raises(InvalidConfiguration) as error:
        restart_strategy(kind | {key: value}, steady)

    assert error.value.key == key


def test_conformance_k27_exponential_delay_is_the_default_with_checkpoints() -> None:
    assert isinstance(restart_strategy(PERIODIC, steady), ExponentialDelay)


def test_conformance_k28_no_restart_is_the_default_without_checkpoints() -> None:
    assert isinstance(restart_strategy({}, steady), NoRestart)
