"""Any rows that a poll may store lead to a diagnosis with text in every language, and never to an error."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings as django_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.alerts.failure_reason import PREFIXES
from monitoring.diagnosis.diagnosis_facts import (
    CheckpointFacts,
    DiagnosisFacts,
    Normal,
    OperatorFacts,
    Raised,
    Settings,
)
from monitoring.diagnosis.signs import advices, causes, signs
from monitoring.history.expectations import Basis, Expectation, Forecast
from monitoring.reasons.reason import render
from tests.monitoring.diagnosis.builders import NOW
from tests.profile import examples

figures = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
floats = st.one_of(st.none(), st.floats(0, 1e15))
signed = st.one_of(st.none(), st.floats(-1e15, 1e15))
arrays = st.lists(figures, max_size=4)
moments = st.integers(-(10**6), 10**6).map(lambda seconds: NOW + timedelta(seconds=seconds))
texts = st.one_of(st.text(max_size=40), st.sampled_from(list(PREFIXES.values())))
bases = st.sampled_from(list(Basis)).map(lambda code: code())
operators = st.builds(
    OperatorFacts,
    name=texts,
    vertex=st.sampled_from("abc"),
    inputs=st.one_of(st.none(), st.lists(st.sampled_from("abcd"), max_size=2)),
    subtasks=st.integers(0, 5),
    acknowledged=st.integers(0, 5),
    **dict.fromkeys(("end_to_end", "sync", "async_", "alignment", "start_delay", "state_size"), arrays),
)
checkpoints = st.builds(
    CheckpointFacts,
    number=st.integers(0),
    status=st.sampled_from(["COMPLETED", "FAILED", "IN_PROGRESS", "?"]),
    triggered_at=moments,
    ended_at=st.one_of(st.none(), moments),
    failure=texts,
    is_savepoint=st.booleans(),
    acknowledged=st.integers(0, 9),
    subtasks=st.integers(0, 9),
    operators=st.lists(operators, max_size=3),
    **dict.fromkeys(
        ("lasted", "start_delay", "alignment", "sync", "async_", "checkpointed_size", "state_size"), figures
    ),
)
json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=5), inner, max_size=2)),
    max_leaves=3,
)
NAMES = ("interval", "timeout", "min_pause", "mode", "externalization", "num_retained", "tolerable_failed_checkpoints")
KEYS = ("restart-strategy", "state.backend.local-recovery", "state.checkpoints.num-retained", "x")
any_facts = st.builds(
    DiagnosisFacts,
    now=st.just(NOW),
    checkpoint=st.one_of(st.none(), checkpoints),
    normal=st.builds(
        Normal,
        count=st.integers(0, 100),
        **dict.fromkeys(("duration", "duration_p95", "start_delay", "alignment", "sync", "async_"), floats),
        **dict.fromkeys(("checkpointed_size", "state_size"), floats),
    ),
    usual=st.dictionaries(
        st.sampled_from(["duration", "state_size"]),
        st.builds(Expectation, st.floats(0, 1e15), st.floats(0, 1e15), bases, st.integers(3, 700)),
    ),
    forecast=st.one_of(
        st.none(),
        st.builds(Forecast, signed, signed, st.one_of(st.none(), moments), st.integers(0, 28)),
    ),
    raised=st.lists(st.builds(Raised, at=moments, text=texts, stacktrace=texts), max_size=2),
    settings=st.builds(
        Settings.read,
        st.dictionaries(st.sampled_from(NAMES), json),
        st.dictionaries(st.sampled_from(KEYS), json),
    ),
    engine=st.sampled_from(["flink", "spark", ""]),
    version=st.sampled_from([(), (1,), (1, 14), (2, 3)]),
    run_started_at=st.one_of(st.none(), moments),
    last_triggered_at=st.one_of(st.none(), moments),
    silent_since=st.one_of(st.none(), moments),
    runs=st.booleans(),
    recent_failures=st.integers(0, 5),
    recent_restarts=st.integers(0, 5),
)


@settings(max_examples=examples(150), deadline=None)
@given(any_facts)
def test_a_diagnosis_never_fails_and_has_a_text_in_every_language(facts: DiagnosisFacts) -> None:
    for found in [*causes(facts), *advices(facts)]:
        reasons = [found.title, found.sentence, found.confidence.reason, *(each.why for each in found.advice)]
        reasons += [reason for each in found.evidence for reason in (each.label, each.value, each.against)]
        for language, _ in django_settings.LANGUAGES:
            assert all(render(reason, language).strip() for reason in reasons)
            assert all(render(each.usual, language) for each in found.evidence if each.usual)
        assert all(each.key for each in found.advice)


def test_the_names_of_signs_are_unique() -> None:
    table = [sign.name for sign in signs()]
    assert len(table) == len(set(table)) >= 25
