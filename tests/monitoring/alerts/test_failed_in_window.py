from datetime import timedelta

from monitoring.alerts.failed_in_window import Condition, FailedCheckpoint, Met, NotMet, WindowFacts, decide

CONDITION = Condition(job="flights-by-route", threshold=3, window=timedelta(minutes=15))


def facts(*ids: int) -> WindowFacts:
    last = (
        FailedCheckpoint(row=7, checkpoint_id=ids[0], message="Checkpoint expired before completing.") if ids else None
    )
    return WindowFacts(count=len(ids), ids=ids, last=last)


def test_the_sentence_says_how_many_in_what_time_and_what_befell_the_last():
    assert decide(CONDITION, facts(41, 40, 38)).sentence == (
        "3 checkpoints of flights-by-route failed within 15 min (threshold 3): the last, 41, expired before completing."
    )


def test_the_threshold_itself_is_met_and_one_less_is_not():
    assert isinstance(decide(CONDITION, facts(3, 2, 1)), Met)
    assert isinstance(decide(CONDITION, facts(2, 1)), NotMet)


def test_the_evidence_is_the_numbers_and_the_ids():
    assert decide(CONDITION, facts(3, 2, 1)).evidence == {
        "count": 3,
        "threshold": 3,
        "window_s": 900,
        "checkpoint_ids": [3, 2, 1],
        "last_row": 7,
    }


def test_one_checkpoint_is_spoken_of_in_the_singular():
    one = Condition(job="j", threshold=2, window=timedelta(minutes=90))
    assert decide(one, facts(5)).sentence == "1 checkpoint of j failed within 1 h 30 min (threshold 2)."
