"""Against the job's own weeks: slower than at this hour otherwise, and where its durations and state are going."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding, Words
from monitoring.diagnosis.scene import Scene
from monitoring.diagnosis.signs import timeout_too_short
from monitoring.diagnosis.signs.base import Sign, length, milliseconds, size
from monitoring.diagnosis.signs.configuration import CHECKPOINTING, Counsel
from monitoring.diagnosis.signs.phases import incremental

FAR = 4  # spreads above what is expected
MORE = 1.5  # times it
SOON = timedelta(days=90)
DOUBLES_IN = 60  # days
MUCH = 100 * 1024**2
_IN_CHINESE = {"this hour of the week": "每周此时", "this hour of the day": "每天此时", "all hours": "所有时段"}


class SlowForThisHour(Sign):
    name = "slow_for_this_hour"
    title = Words("Slower than usual at this hour", "比往常此时慢")

    def find(self, scene: Scene) -> Finding | None:
        checkpoint, expected = scene.checkpoint, scene.usual.get("duration")
        if checkpoint is None or expected is None or checkpoint.is_savepoint or checkpoint.has_failed:
            return None
        took = checkpoint.lasted
        if took is None or took < max(MORE * expected.expected, expected.expected + 1000):
            return None
        if expected.deviations(took) < FAR:
            return None
        hours = expected.basis.partition(",")[0]
        values: dict[str, object] = {
            "number": checkpoint.number,
            "took": length(took),
            "expected": length(expected.expected),
            "basis": expected.basis,
            "hours": _IN_CHINESE.get(hours, hours),
        }
        return Finding(
            self.name,
            self.title,
            Words(
                "Checkpoint {number} took {took} so far; this job's usually take {expected} ({basis})."
                if checkpoint.is_pending
                else "Checkpoint {number} took {took}; this job's usually take {expected} ({basis}).",
                "检查点 {number} 耗时 {took}，而此作业（{hours}，近四周）通常为 {expected}。",
            )
            % values,
            (
                Evidence(
                    Words("Lasted", "持续时间"),
                    milliseconds(took),
                    milliseconds(expected.expected),
                    Words("in " + hours if hours.startswith("all") else "at " + hours, _IN_CHINESE.get(hours, hours)),
                ),
                Evidence(Words("Usual spread", "通常的波动"), milliseconds(expected.spread)),
                Evidence(Words("Hours looked at", "所依据的小时数"), str(expected.hours)),
            ),
            (),
            Confidence.LIKELY,
        )


class TimeoutForeseen(Counsel):
    name = "timeout_foreseen"
    at = "timeout"
    title = Words("Checkpoints will reach their time-out", "检查点将达到超时时间")
    weight = 0.75

    def sentence(self, scene: Scene) -> Words | None:
        told, timeout = scene.forecast, scene.settings.timeout
        if told is None or told.exceeds_timeout_on is None or timeout is None or not scene.runs:
            return None
        if told.exceeds_timeout_on > scene.now + SOON or timeout_too_short.near_timeout(scene) is not None:
            return None
        day = f"{told.exceeds_timeout_on:%Y-%m-%d}"
        return Words(
            "One in twenty checkpoints takes {growth} longer from day to day: if that goes on they reach the "
            "time-out of {timeout} about {day}.",
            "每二十个检查点中最慢的一个每天慢 {growth}：照此下去，约在 {day} 达到超时时间 {timeout}。",
        ) % {"growth": length(told.duration_per_day), "timeout": length(timeout), "day": day}

    def advise(self, scene: Scene) -> Sequence[Advice]:
        why = Words("before that day; or find what grows", "在此之前调大；或找出增长的原因")
        return (Advice("execution.checkpointing.timeout", "", why, CHECKPOINTING),)

    def evidence(self, scene: Scene) -> Sequence[Evidence]:
        told = scene.forecast
        grown = size(told.state_per_day) if told and told.state_per_day and told.state_per_day > 0 else ""
        days = (Evidence(Words("Days looked at", "所依据的天数"), str(told.days if told else 0)),)
        return (Evidence(Words("State, more a day", "状态每天增长"), grown), *days) if grown else days


class StateDoubles(Counsel):
    name = "state_doubles"
    title = Words("The state doubles within two months", "状态将在两个月内翻倍")
    weight = 0.4

    def sentence(self, scene: Scene) -> Words | None:
        growth, held = scene.forecast.state_per_day if scene.forecast else None, scene.normal.state_size
        if growth is None or held is None or held < MUCH or growth * DOUBLES_IN < held or not scene.runs:
            return None
        days = f"{held / growth:.0f}"
        return Words(
            f"The state grows by {size(growth)} a day: from {size(held)} it doubles within {days} days.",
            f"状态每天增长 {size(growth)}：当前 {size(held)}，将在 {days} 天内翻倍。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        return incremental(scene)


SIGNS = (SlowForThisHour(), TimeoutForeseen(), StateDoubles())
