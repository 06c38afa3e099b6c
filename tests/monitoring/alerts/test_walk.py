"""Properties of an evaluation: one evaluation and many partial ones agree, and so do live evaluation and backtest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitoring.alerts.backtest import Watched, replay, walk_through
from monitoring.alerts.evaluation import evaluate_due
from monitoring.alerts.kinds import kind_of, kinds
from monitoring.alerts.kinds.base import Source, Subject
from monitoring.alerts.rule_facts import Event, Facts, Interval, RunFact
from monitoring.alerts.scope import watch_of
from monitoring.alerts.walk import LATE, Holds, Move, State, Transition, Watch, advance
from monitoring.models import AlertRule, Incident
from tests.profile import examples

BEGIN = datetime(2026, 11, 21, 12, tzinfo=UTC)
LENGTH = 4 * 3600
MOMENTS = st.integers(1, LENGTH * 10).map(lambda tenths: tenths / 10)
THRESHOLDS = {"failed_in_window": 2, "restart_loop": 2, "failed_in_total": 3, "consecutive_failures": 2}


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


@st.composite
def stories(draw: st.DrawFn) -> Facts:
    moments = sorted(draw(st.lists(MOMENTS, max_size=25, unique=True)))
    high = draw(st.lists(st.booleans(), min_size=len(moments), max_size=len(moments)))
    events = [
        Event(at(moment), float(is_high), number, number)
        for number, (moment, is_high) in enumerate(zip(moments, high, strict=True))
    ]
    cuts = sorted(draw(st.lists(MOMENTS, max_size=4, unique=True)))
    outages = [Interval(at(a), at(b)) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    by_hour = draw(st.lists(st.sampled_from([None, 0.25, 2.0]), min_size=24, max_size=24))
    return Facts(events, draw(lives()), outages, {BEGIN.date(): 0.5}, BEGIN, {BEGIN.date(): by_hour})


@st.composite
def lives(draw: st.DrawFn) -> list[RunFact]:
    ends = sorted(draw(st.lists(MOMENTS, max_size=3, unique=True)))
    begins = [0.0, *(end + draw(st.integers(0, 600)) for end in ends)]
    failed = draw(st.booleans())
    numbered = enumerate(zip(begins, [*ends, None], strict=True), 1)
    return [
        RunFact(
            number, at(begin), None if end is None else at(max(begin, end)), failed and end is not None, 60_000, 60_000
        )
        for number, (begin, end) in numbered
    ]


@st.composite
def watches(draw: st.DrawFn) -> Watch:
    kind = draw(st.sampled_from(list(kinds().values())))
    threshold = THRESHOLDS.get(kind.name, 1 if kind.source in (Source.METRIC, Source.HOURLY_SIZE) else None)
    if kind.name.endswith("_relative"):
        threshold = 150
    elif threshold is None and kind.threshold is not None and kind.subject is not Subject.JOB:
        threshold = 60
    elif threshold is None and kind.by_absence:
        threshold = draw(st.sampled_from([30, 300, 1800]))
    window = draw(st.sampled_from([60, 900])) if kind.window else None
    seconds = st.sampled_from([0, 1, 60, 600])
    holds = Holds(
        timedelta(seconds=draw(seconds)),
        timedelta(seconds=draw(seconds)),
        draw(st.sampled_from([0, 2, 4])),
        timedelta(seconds=draw(st.sampled_from([600, 3600]))),
    )
    weeks = draw(st.sampled_from([None, 4]))
    terms = kind.fill(threshold, window, {"lead_s": 0, "days": 7, "weeks": weeks, "least_ms": 0})
    return Watch(kind, terms, holds)


def in_pieces(watch: Watch, facts: Facts, looks: list[float]) -> list[Transition]:
    """Evaluate in pieces as live evaluation does. Each piece overlaps the previous one, because rows may be late."""
    state, transitions = advance(watch, facts, State(), None, BEGIN)
    last = BEGIN
    for look in sorted({*looks, LENGTH}):
        state, more = advance(watch, facts, state, last - LATE, at(look))
        transitions += more
        last = at(look)
    return transitions


def what(transitions: list[Transition]) -> list[tuple[Move, datetime, bool]]:
    return [(each.move, each.at, each.flapping) for each in transitions]


@settings(max_examples=examples(250), deadline=None)
@given(watches(), stories(), st.lists(MOMENTS, max_size=40))
def test_looking_more_often_changes_when_something_is_noticed_never_whether(
    watch: Watch, facts: Facts, looks: list[float]
) -> None:
    assert what(in_pieces(watch, facts, looks)) == what(walk_through(watch, facts, BEGIN, at(LENGTH)))


@settings(deadline=None)
@given(watches(), stories())
def test_openings_and_closings_alternate_and_ascend(watch: Watch, facts: Facts) -> None:
    transitions = walk_through(watch, facts, BEGIN, at(LENGTH))
    assert [each.move for each in transitions] == [Move.OPENED, Move.CLOSED] * (len(transitions) // 2) + [
        Move.OPENED
    ] * (len(transitions) % 2)
    assert [each.at for each in transitions] == sorted(each.at for each in transitions)


@settings(deadline=None)
@given(st.lists(MOMENTS, max_size=60, unique=True), st.sampled_from([60, 900, 5000]), MOMENTS)
def test_a_window_counts_the_increase_of_the_engines_counter(moments: list[float], window: int, look: float) -> None:
    """The expected value is max − min of the engine's counter of failed checkpoints, which does not reset here."""
    kind = kind_of("failed_in_window")
    facts = Facts([Event(at(moment), 1, number, number) for number, moment in enumerate(sorted(moments))])

    def counter(seconds: float) -> int:
        return sum(at(moment) <= at(seconds) for moment in moments)

    assert kind.value(facts, kind.fill(1, window, {}), at(look)) == counter(look) - counter(look - window)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 3600), min_size=1, max_size=12, unique=True),
    st.lists(st.integers(1, 3600), max_size=6, unique=True),
    st.integers(1, 3),
    st.sampled_from([0, 60]),
)
def test_live_evaluation_and_backtest_agree_on_the_same_rows(
    rows, failures: list[int], looks: list[int], threshold: int, hold: int
) -> None:
    """Compare over the database, with the rows that polls had written before each evaluation."""
    AlertRule.objects.all().update(enabled=False)
    run = rows.run(rows.job())
    rule = AlertRule.objects.create(
        job=run.job, threshold=threshold, window_s=300, check_every_s=5, open_hold_s=hold, close_hold_s=hold
    )
    evaluate_due(BEGIN)
    AlertRule.objects.exclude(pk=rule.pk).update(enabled=False)
    unwritten = sorted(failures)
    for look in sorted({*looks, 3600}):
        while unwritten and unwritten[0] <= look:
            rows.failed(run, next(rows.numbers), at(unwritten.pop(0)))
        AlertRule.objects.filter(pk=rule.pk).update(next_check_at=None)
        evaluate_due(at(look))

    lived = Incident.objects.filter(rule=rule).order_by("opened_at").values_list("opened_at", "resolved_at")
    replayed = replay(watch_of(rule), Watched(run.job_id, run.job.name), BEGIN, at(3600)).incidents
    assert list(lived) == [(incident.opened_at, incident.closed_at) for incident in replayed]
