"""Incidents that opened together: which of them form a group, and how it is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from django.utils.translation import override

from dashboard.queries.correlation import MOST_GROUPS, OpenIncident, correlations

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
_numbers = count(1)


def incident(
    job: int, after_s: float = 0, kind: str = "job_failed", cluster: str = "eu", **labels: str
) -> OpenIncident:
    return OpenIncident(next(_numbers), kind, f"job-{job}", cluster, labels, NOW + timedelta(seconds=after_s), job)


def test_three_jobs_of_a_cluster_within_two_minutes_are_a_group() -> None:
    (group,) = correlations([incident(1), incident(2, 60), incident(3, 120), incident(4, 500)])
    assert [each.job_id for each in group.incidents] == [1, 2, 3]
    assert (group.place, group.label, group.began_at) == ("eu", "", NOW)
    assert group.sentence == "3 jobs on cluster eu failed within 2 min."


@pytest.mark.parametrize(
    "apart",
    [
        [incident(1), incident(2, 60), incident(3, 121)],  # opened too late
        [incident(1), incident(2), incident(2, 5, "job_failed")],  # only two jobs
        [incident(1), incident(2), incident(3, kind="restart_loop")],  # incidents of another kind
        [incident(1), incident(2), incident(3, cluster="us")],  # incidents on another cluster
        [],
    ],
)
def test_unrelated_incidents_are_not_grouped(apart: list[OpenIncident]) -> None:
    assert correlations(apart) == []


def test_jobs_of_several_clusters_are_a_group_by_their_label() -> None:
    kind = "end_to_end_duration_relative"
    (group,) = correlations([incident(n, n, kind, cluster=f"c{n}", team="payments", env="prod") for n in range(1, 5)])
    assert (group.label, group.place) == ("team", "payments") or (group.label, group.place) == ("env", "prod")
    assert "4 jobs with the label" in group.sentence
    assert "slowed down within 3 s" in group.sentence


def test_a_cluster_is_preferred_to_a_label_of_the_same_jobs() -> None:
    (group,) = correlations([incident(n, team="payments") for n in range(3)])
    assert (group.place, group.label) == ("eu", "")


def test_a_label_with_more_jobs_is_preferred_and_no_incident_is_in_two_groups() -> None:
    of_team = [incident(n, cluster="eu" if n < 3 else "us", team="payments") for n in range(6)]
    others = [incident(n, cluster="ap") for n in range(10, 13)]
    groups = correlations([*of_team, *others])
    assert [(group.label, group.jobs) for group in groups] == [("team", 6), ("", 3)]
    pks = [each.pk for group in groups for each in group.incidents]
    assert len(pks) == len(set(pks)) == 9


def test_long_lists_of_incidents_and_groups_are_truncated() -> None:
    (group,) = correlations([incident(n) for n in range(50)])
    assert (len(group.shown), group.left_out) == (20, 30)
    many = [incident(100 * place + n, cluster=f"c{place}") for place in range(MOST_GROUPS + 2) for n in range(3)]
    assert len(correlations(many)) == MOST_GROUPS


@pytest.mark.parametrize(
    "kind",
    ["end_to_end_duration", "failed_in_window", "no_completed_checkpoint", "job_failed", "state_size", "unknown"],
)
def test_every_kind_has_a_sentence_in_both_languages(kind: str) -> None:
    (group,) = correlations([incident(n, n, kind) for n in range(3)])
    assert "3" in group.sentence
    assert "eu" in group.sentence
    with override("zh-hans"):
        assert "集群 eu" in group.sentence
        assert "within" not in group.sentence
