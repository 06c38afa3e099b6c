"""Operator state: its content, its redistribution, and its serialized form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointing.state.operator_state import (
    OperatorStateContext,
    OperatorStateStore,
    OperatorStateUnusable,
    decode,
    empty_stores,
    encode,
    restored,
)
from checkpointing.state.values import NotJson


def stores(*lists: list[object], mode: str = "list_state") -> tuple[OperatorStateStore, ...]:
    made = empty_stores(len(lists))
    for store, elements in zip(made, lists, strict=True):
        getattr(store, mode)("it").add_all(elements)
    return made


def elements(given: tuple[OperatorStateStore, ...], mode: str = "list_state") -> list[list[object]]:
    return [getattr(store, mode)("it").get() for store in given]


@pytest.mark.parametrize(
    ("old", "parallelism", "new"),
    [
        ([[1, 2, 3], [4], []], 3, [[1, 2, 3], [4], []]),
        ([[1, 2, 3], [4], [5]], 2, [[1, 2, 3], [4, 5]]),
        ([[1, 2, 3, 4, 5]], 3, [[1, 2], [3, 4], [5]]),
        ([[1], [2]], 4, [[1], [2], [], []]),
    ],
)
def test_a_list_state_is_redistributed_evenly_when_the_parallelism_changes(old, parallelism, new) -> None:
    assert elements(restored(stores(*old), parallelism)) == new


@given(st.lists(st.lists(st.integers(), max_size=5), min_size=1, max_size=5), st.integers(1, 7))
def test_no_element_of_a_list_state_is_lost_or_doubled_and_shares_differ_by_one(old, parallelism) -> None:
    shares = elements(restored(stores(*old), parallelism))
    assert [each for share in shares for each in share] == [each for share in old for each in share]
    if len(old) != parallelism:
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_subtask_gets_the_complete_union_list_also_with_the_same_parallelism(parallelism: int) -> None:
    union = restored(stores([1], [2, 3], mode="union_list_state"), parallelism)
    assert elements(union, "union_list_state") == [[1, 2, 3]] * parallelism


def test_broadcast_state_is_copied() -> None:
    old = empty_stores(2)
    for store in old:
        store.broadcast_state("rules").put_all({"a": 1, "b": [2]})
    new = restored(old, 3)
    assert [dict(store.broadcast_state("rules").items()) for store in new] == [{"a": 1, "b": [2]}] * 3
    new[0].broadcast_state("rules").put("a", 5)
    assert new[1].broadcast_state("rules").get("a") == 1
    assert old[0].broadcast_state("rules").get("a") == 1


def test_a_state_that_only_some_subtasks_have_is_redistributed_all_the_same() -> None:
    old = empty_stores(3)
    old[1].list_state("it").add("x")
    assert elements(restored(old, 2)) == [["x"], []]


def test_broadcast_keys_are_equal_if_their_json_is_equal() -> None:
    state = OperatorStateStore().broadcast_state("rules")
    state.put(1, "one")
    state.put("1", "text")
    state.put([1, 2], "pair")
    assert (state.get(1), state.get("1"), state.get((1, 2))) == ("one", "text", "pair")
    assert not state.contains(True)
    state.remove(1)
    state.remove(1)
    assert {str(key): value for key, value in state.items()} == {"1": "text", "[1, 2]": "pair"}


def test_list_state_stores_copies_of_values() -> None:
    state = OperatorStateStore().list_state("it")
    mine = {"offsets": [1]}
    state.add(mine)
    mine["offsets"].append(2)
    state.get()[0]["offsets"].append(3)
    assert state.get() == [{"offsets": [1]}]


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {2}}, [b"x"], float("nan"), object()])
def test_a_value_that_json_cannot_hold_is_refused_by_name_and_changes_nothing(value: object) -> None:
    state = OperatorStateStore().list_state("offsets")
    state.add("kept")
    with pytest.raises(NotJson, match=r"list state 'offsets'.*allowed are"):
        state.update(["x", value])
    with pytest.raises(NotJson, match="list state 'offsets'"):
        state.add_all(["x", value])
    assert state.get() == ["kept"]


def test_a_name_has_one_mode() -> None:
    store = OperatorStateStore()
    store.list_state("offsets")
    with pytest.raises(ValueError, match="'offsets' is a list state, not a broadcast state"):
        store.broadcast_state("offsets")
    with pytest.raises(ValueError, match="'' is not allowed"):
        store.list_state("")


def test_two_subtasks_must_agree_on_the_mode() -> None:
    pair = empty_stores(2)
    pair[0].list_state("it")
    pair[1].union_list_state("it")
    with pytest.raises(ValueError, match="'it' must have the same mode in all subtasks; it is list in only some"):
        encode(pair)


def test_the_context_of_several_subtasks_requires_an_index() -> None:
    context = OperatorStateContext(empty_stores(2))
    context.subtask(1).list_state("it").add(1)
    assert elements(context.stores) == [[], [1]]
    with pytest.raises(ValueError, match="there are 2 subtasks"):
        context.list_state("it")
    with pytest.raises(IndexError, match="subtask 2 does not exist"):
        context.subtask(2)


def test_written_operator_state_is_read_back() -> None:
    pair = empty_stores(2)
    pair[0].list_state("offsets").add({"topic": "ä", "at": 2**60})
    pair[1].union_list_state("ids").add_all([1.5, None, True])
    pair[1].broadcast_state("rules").put(["k", 1], "v")
    back = decode(encode(pair), "here")
    assert encode(back) == encode(pair)
    assert back[0].list_state("offsets").get() == [{"topic": "ä", "at": 2**60}]
    assert list(back[1].broadcast_state("rules").items()) == [(["k", 1], "v")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"version":1,"subt', "cut off or damaged"),
        (b"[]", "not operator state"),
        (b'{"version":1,"subtasks":[]}', "not operator state"),
        (b'{"version":1,"subtasks":[{"a":{"mode":"heap","elements":[]}}]}', "not operator state"),
        (b'{"version":1,"subtasks":[{"a":{"mode":"broadcast","elements":[1]}}]}', "not operator state"),
        (b'{"version":2,"subtasks":[{}]}', "version 2; this release reads up to 1"),
    ],
)
def test_other_content_is_refused_and_named(content: bytes, problem: str) -> None:
    with pytest.raises(OperatorStateUnusable, match=f"operators/sink: .*{problem}"):
        decode(content, "operators/sink")
