"""Restart strategies: whether a failed job may start again, and after which delay (Flink's `restart-strategy.*`).

Pure: time is passed in as seconds of a monotonic clock, randomness as a function. Call `notify_failure` once per
failure, then `can_restart` and `backoff_s`, which change nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from checkpointing.model.configuration import CheckpointConfiguration, InvalidConfiguration, duration_ms, whole_number

PREFIX = "restart-strategy."
UNLIMITED_ATTEMPTS = 2**31 - 1
# The jitter is applied before the limit, as in Flink. Beyond this factor, more growth could only overflow.
_FAR_PAST_THE_LIMIT = 1e6
_NAMES = {
    "none": "none", "off": "none", "disable": "none",
    "fixed-delay": "fixed-delay", "fixeddelay": "fixed-delay",
    "failure-rate": "failure-rate", "failurerate": "failure-rate",
    "exponential-delay": "exponential-delay", "exponentialdelay": "exponential-delay",
}  # fmt: skip


class RestartStrategy(Protocol):
    def notify_failure(self, now_s: float) -> bool:
        """Record a failure.

        Return True for a new attempt, False if the failure belongs to a restart that is already due.
        """
        ...

    def can_restart(self, now_s: float) -> bool: ...

    def backoff_s(self) -> float:
        """Return the delay of the restart after the last failure."""
        ...

    def describe(self) -> str: ...


class NoRestart:
    def notify_failure(self, now_s: float) -> bool:
        return True

    def can_restart(self, now_s: float) -> bool:
        return False

    def backoff_s(self) -> float:
        return 0.0

    def describe(self) -> str:
        return "no restart"


class FixedDelay:
    def __init__(self, attempts: int, delay_s: float) -> None:
        self._attempts = attempts
        self._delay_s = delay_s
        self._failures = 0

    def notify_failure(self, now_s: float) -> bool:
        self._failures += 1
        return True

    def can_restart(self, now_s: float) -> bool:
        return self._failures <= self._attempts

    def backoff_s(self) -> float:
        return self._delay_s

    def describe(self) -> str:
        return f"fixed delay of {self._delay_s:g} s, {_times(self._attempts)}"


class FailureRate:
    """Restarts while at most `max_failures` failures are in one interval."""

    def __init__(self, max_failures: int, interval_s: float, delay_s: float) -> None:
        self._max_failures = max_failures
        self._interval_s = interval_s
        self._delay_s = delay_s
        self._failures: deque[float] = deque(maxlen=max_failures + 1)

    def notify_failure(self, now_s: float) -> bool:
        self._failures.append(now_s)
        return True

    def can_restart(self, now_s: float) -> bool:
        return len(self._failures) <= self._max_failures or now_s - self._failures[0] > self._interval_s

    def backoff_s(self) -> float:
        return self._delay_s

    def describe(self) -> str:
        return f"at most {self._max_failures} failures in {self._interval_s:g} s, delay {self._delay_s:g} s"


@dataclass(frozen=True)
class ExponentialDelaySettings:
    initial_s: float = 1.0
    max_s: float = 60.0
    multiplier: float = 1.5
    reset_threshold_s: float = 3600.0
    jitter: float = 0.1
    attempts: int = UNLIMITED_ATTEMPTS


class ExponentialDelay:
    """The delay grows with each attempt up to a limit, and is reset after a quiet time. `random` returns -1 to 1."""

    def __init__(self, settings: ExponentialDelaySettings, random: Callable[[], float]) -> None:
        self._settings = settings
        self._random = random
        self._attempt = 0
        self._backoff_s: float | None = None
        self._next_restart_s = float("-inf")

    def notify_failure(self, now_s: float) -> bool:
        if self._backoff_s is not None and now_s <= self._next_restart_s:
            return False
        if now_s - self._next_restart_s >= self._settings.reset_threshold_s:
            self._attempt = 0
        self._backoff_s = self._next_backoff()
        self._next_restart_s = now_s + self._backoff_s
        self._attempt += 1
        return True

    def can_restart(self, now_s: float) -> bool:
        return self._attempt <= self._settings.attempts

    def backoff_s(self) -> float:
        if self._backoff_s is None:
            raise RuntimeError("there is no backoff before the first failure")
        return self._backoff_s

    def describe(self) -> str:
        s = self._settings
        return (
            f"exponential delay from {s.initial_s:g} s to {s.max_s:g} s, factor {s.multiplier:g}, {_times(s.attempts)}"
        )

    def _next_backoff(self) -> float:
        s = self._settings
        plain = s.initial_s
        for _ in range(self._attempt):
            if plain > s.max_s * _FAR_PAST_THE_LIMIT:
                break
            plain *= s.multiplier
        jittered = plain * (1 + s.jitter * self._random())
        return max(s.initial_s, min(jittered, s.max_s))


def restart_strategy(settings: Mapping[str, str], random: Callable[[], float]) -> RestartStrategy:
    """Return the strategy in `settings`. The default is exponential-delay with periodic checkpoints, else none.

    Raise InvalidConfiguration, which names the wrong key.
    """
    key = PREFIX + "type" if PREFIX + "type" in settings else "restart-strategy"
    text = settings.get(key)
    if text is None:
        name = "exponential-delay" if CheckpointConfiguration.parse(settings).periodic else "none"
    elif text.lower() in _NAMES:
        name = _NAMES[text.lower()]
    else:
        raise InvalidConfiguration(key, text, "none, fixed-delay, failure-rate or exponential-delay")
    return _MAKERS[name](settings, random)


def _fixed_delay(settings: Mapping[str, str], random: Callable[[], float]) -> RestartStrategy:
    p = PREFIX + "fixed-delay."
    return FixedDelay(
        whole_number(p + "attempts", settings.get(p + "attempts", "1"), least=0), _seconds(settings, p + "delay", "1 s")
    )


def _failure_rate(settings: Mapping[str, str], random: Callable[[], float]) -> RestartStrategy:
    p = PREFIX + "failure-rate."
    key = p + "max-failures-per-interval"
    return FailureRate(
        whole_number(key, settings.get(key, "1"), least=1),
        _seconds(settings, p + "failure-rate-interval", "1 min"),
        _seconds(settings, p + "delay", "1 s"),
    )


def _exponential_delay(settings: Mapping[str, str], random: Callable[[], float]) -> RestartStrategy:
    p = PREFIX + "exponential-delay."
    attempts = p + "attempts-before-reset-backoff"
    chosen = ExponentialDelaySettings(
        initial_s=_seconds(settings, p + "initial-backoff", "1 s", least_ms=1),
        max_s=_seconds(settings, p + "max-backoff", "1 min", least_ms=1),
        multiplier=_real(settings, p + "backoff-multiplier", "1.5", least=1.0),
        reset_threshold_s=_seconds(settings, p + "reset-backoff-threshold", "1 h", least_ms=1),
        jitter=_real(settings, p + "jitter-factor", "0.1", least=0.0, most=1.0),
        attempts=whole_number(attempts, settings.get(attempts, str(UNLIMITED_ATTEMPTS)), least=1),
    )
    if chosen.max_s < chosen.initial_s:
        raise InvalidConfiguration(
            p + "max-backoff", settings.get(p + "max-backoff", "1 min"), "at least the initial backoff"
        )
    return ExponentialDelay(chosen, random)


def _none(settings: Mapping[str, str], random: Callable[[], float]) -> RestartStrategy:
    return NoRestart()


_MAKERS: dict[str, Callable[[Mapping[str, str], Callable[[], float]], RestartStrategy]] = {
    "none": _none,
    "fixed-delay": _fixed_delay,
    "failure-rate": _failure_rate,
    "exponential-delay": _exponential_delay,
}


def _seconds(settings: Mapping[str, str], key: str, default: str, *, least_ms: int = 0) -> float:
    return duration_ms(key, settings.get(key, default), least=least_ms) / 1000


def _real(settings: Mapping[str, str], key: str, default: str, *, least: float, most: float = float("inf")) -> float:
    text = settings.get(key, default)
    allowed = f"a number, at least {least:g}" + (f", at most {most:g}" if most != float("inf") else "")
    try:
        value = float(text)
    except ValueError:
        raise InvalidConfiguration(key, text, allowed) from None
    if not least <= value <= most:
        raise InvalidConfiguration(key, text, allowed)
    return value


def _times(attempts: int) -> str:
    return "without limit" if attempts >= UNLIMITED_ATTEMPTS else f"at most {attempts} times"
