from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitoring.models import SavepointOrigin
from monitoring.reasons.savepoints import SavepointReason as Why
from monitoring.savepoints.retention import OURS, Policy, RetainedSavepoint, judge, outlasted

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def held(key, hours_old, origin=SavepointOrigin.SCHEDULED, **facts):
    return RetainedSavepoint(key, NOW - timedelta(hours=hours_old), origin, **facts)


def going(savepoints, count=None, hours=None):
    age = None if hours is None else timedelta(hours=hours)
    return [each.key for each in outlasted(judge(savepoints, Policy(count, age), NOW))]


FIVE = [held(key, hours_old=key) for key in range(1, 6)]


@pytest.mark.parametrize(
    ("policy", "expired"),
    [
        ({}, []),
        ({"count": 5}, []),
        ({"count": 3}, [5, 4]),
        ({"count": 0}, [5, 4, 3, 2]),  # the newest valid savepoint is kept
        ({"hours": 3}, [5, 4, 3]),  # exactly three hours is too old
        ({"count": 4, "hours": 3}, [5]),
        ({"count": 1, "hours": 4.5}, [5]),
    ],
)
def test_savepoints_neither_among_the_newest_nor_young_are_deleted_oldest_first(policy, expired):
    assert going(FIVE, **policy) == expired


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"pinned": True}, Why.PINNED()),
        ({"needed": Why.NEEDED_BY_RUN(number=5)}, Why.NEEDED_BY_RUN(number=5)),
        ({"origin": SavepointOrigin.MANUAL}, Why.NOT_OURS()),
        ({"origin": SavepointOrigin.ADOPTED}, Why.NOT_OURS()),
    ],
)
def test_some_savepoints_are_kept_under_every_policy(facts, why):
    special = held(9, hours_old=99, **facts)
    assert going([*FIVE, special], count=1) == [5, 4, 3, 2]
    assert next(each.why for each in judge([*FIVE, special], Policy(1), NOW) if each.held == special) == why


def test_the_newest_good_savepoint_is_kept_when_newer_ones_are_damaged():
    damaged = [held(1, 1, good=False), held(2, 2, good=False), held(3, 3), held(4, 4)]
    assert going(damaged, count=0) == [4, 2, 1]


def test_only_those_that_waymark_took_are_counted():
    by_hand = [held(key, hours_old=0.1 * key, origin=SavepointOrigin.MANUAL) for key in range(10, 13)]
    assert going([*FIVE, *by_hand], count=4) == [5]


def test_a_deleted_savepoint_has_the_reason():
    verdict = judge(FIVE, Policy(3, timedelta(hours=2)), NOW)[-1]
    assert str(verdict.why) == "number 5 from the newest, 5 h old; the job keeps the newest 3 and those of the last 2 h"


SAVEPOINTS = st.lists(
    st.builds(
        RetainedSavepoint,
        key=st.integers(1, 10_000),
        taken_at=st.integers(0, 500).map(lambda hours: NOW - timedelta(hours=hours)),
        origin=st.sampled_from(SavepointOrigin),
        good=st.booleans(),
        pinned=st.booleans(),
        needed=st.sampled_from(("", "run 5 was started from it")),
    ),
    max_size=20,
    unique_by=lambda each: each.key,
)
POLICIES = st.builds(
    Policy,
    st.none() | st.integers(0, 10),
    st.none() | st.integers(0, 500).map(lambda hours: timedelta(hours=hours)),
)


@given(SAVEPOINTS, POLICIES)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine may be slow
def test_the_newest_good_savepoint_is_kept_under_every_policy(savepoints, policy):
    gone = outlasted(judge(savepoints, policy, NOW))
    kept = [each for each in savepoints if each not in gone]
    good = [each for each in savepoints if each.good]
    assert not good or max(good, key=lambda each: (each.taken_at, each.key)) in kept
    assert all(each.origin in OURS and not each.pinned and not each.needed for each in gone)
    ours = sorted((each for each in savepoints if each.origin in OURS), key=lambda each: (each.taken_at, each.key))
    if policy.count is not None:
        assert set(ours[len(ours) - min(policy.count, len(ours)) :]) <= set(kept)
    if policy.age is not None:
        assert all(NOW - each.taken_at >= policy.age for each in gone)


@given(SAVEPOINTS, POLICIES)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine may be slow
def test_keeping_twice_is_keeping_once(savepoints, policy):
    gone = outlasted(judge(savepoints, policy, NOW))
    kept = [each for each in savepoints if each not in gone]
    assert outlasted(judge(kept, policy, NOW)) == []


def test_final_savepoints_of_runs_are_counted_separately():
    ends = [held(key, hours_old=key - 10, origin=SavepointOrigin.FINAL) for key in range(11, 15)]
    found = judge([*FIVE, *ends], Policy(count=4, final=2), NOW)
    assert [each.key for each in outlasted(found)] == [5, 14, 13]
    why = Why.OUTLASTED(place=4, age=timedelta(hours=4), policy=Why.KEEPS_NEWEST(count=2))
    assert next(each.why for each in found if each.held.key == 14) == why
    assert [each.key for each in outlasted(judge(ends, Policy(count=1), NOW))] == [], "all stay without a number"
